"""Addresses and answers of the Hugging Face Hub: which parquet files a dataset has.

One end point serves all: the tree of a revision, which gives every file's path and size.  For most
datasets it is the branch of converted parquet files (``config/split/0000.parquet``), for
FineWeb-Edu the originals.  Answers come from outside, so every field is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import quote, urljoin, urlsplit

from daisychain.data.port import DataFile, DataPort, PortFailure
from daisychain.data.retry import Retry
from daisychain.data.spec import CONVERTED, DatasetSpec, parse_dataset
from daisychain.errors import DataError, SettingsError

HUB_ADDRESS = "https://huggingface.co"
MAX_ANSWER_BYTES = 1 << 24
MAX_PAGES = 20
MAX_FILES = 20_000
MAX_FILE_BYTES = 1 << 50
MAX_PATH_CHARACTERS = 1_000
SMALLEST_PARQUET_BYTES = 12


@dataclass(frozen=True)
class RemoteFile:
    """One parquet file; ``identity`` changes with its content."""

    path: str
    bytes: int
    identity: str


@dataclass(frozen=True)
class Listing:
    """The files of one config and split, ordered by path."""

    spec: DatasetSpec
    files: tuple[RemoteFile, ...]

    def to_record(self) -> dict[str, object]:
        """JSON-able, for checkpoints and for the other members of a room."""
        return {
            "repo": self.spec.repo,
            "config": self.spec.config,
            "split": self.spec.split,
            "column": self.spec.column,
            "revision": self.spec.revision,
            "folder": self.spec.folder,
            "files": [[file.path, file.bytes, file.identity] for file in self.files],
        }

    @staticmethod
    def from_record(record: object) -> Listing:
        """The listing that another device sent.  Raises DataError."""
        try:
            fields = dict(record)  # type: ignore[call-overload]
            entries = [
                {"type": "file", "path": path, "size": size, "oid": identity}
                for path, size, identity in fields.pop("files")
            ]
            if not all(isinstance(value, str) for value in fields.values()):
                raise TypeError("a field is no text")
            parse_dataset(fields["repo"])
            return Listing(DatasetSpec(**fields), tuple(parquet_files(entries)))
        except (TypeError, ValueError, KeyError, SettingsError) as cause:
            raise DataError(f"The list of data files is malformed ({cause}).") from cause


def tree_address(hub: str, spec: DatasetSpec) -> str:
    """The API address that lists the files of a dataset's revision."""
    folder = f"/{quote(spec.folder)}" if spec.folder else ""
    revision = quote(spec.revision, safe="")
    return f"{hub}/api/datasets/{spec.repo}/tree/{revision}{folder}?recursive=true"


def file_address(hub: str, spec: DatasetSpec, path: str) -> str:
    """Where a file is to be had; the Hub redirects to a storage host."""
    return f"{hub}/datasets/{spec.repo}/resolve/{quote(spec.revision, safe='')}/{quote(path)}"


def tokenizer_address(hub: str, repo: str) -> str:
    """Where a model repository keeps its tokenizer."""
    return f"{hub}/{repo}/resolve/main/tokenizer.json"


def parquet_files(entries: object) -> Iterable[RemoteFile]:
    """The parquet files among the entries of a tree answer.  Raises DataError."""
    if not isinstance(entries, list):
        raise DataError("The Hub's list of files is not a list.")
    for entry in entries:
        if not isinstance(entry, dict):
            raise DataError("The Hub's list of files is malformed.")
        path, size = entry.get("path"), entry.get("size")
        if entry.get("type") != "file" or not isinstance(path, str):
            continue
        if not path.endswith(".parquet") or len(path) > MAX_PATH_CHARACTERS or ".." in path:
            continue
        if not isinstance(size, int) or not SMALLEST_PARQUET_BYTES <= size <= MAX_FILE_BYTES:
            continue
        large = entry.get("lfs")
        identity = large.get("oid") if isinstance(large, dict) else None
        yield RemoteFile(path, size, str(identity or entry.get("oid") or "")[:128])


def choose_split(spec: DatasetSpec, files: list[RemoteFile]) -> Listing:
    """The files of the wanted (or usual) config and split.  Raises DataError naming the choices."""
    if spec.folder:
        return Listing(spec, tuple(sorted(files, key=lambda file: file.path)))
    splits: dict[tuple[str, str], list[RemoteFile]] = {}
    for file in files:
        config, split = _config_and_split(file.path)
        splits.setdefault((config, split), []).append(file)
    config = _choose("config", spec.config, "default", [key[0] for key in splits], spec)
    of_config = [key[1] for key in splits if key[0] == config]
    split = _choose("split", spec.split, "train", of_config, spec)
    chosen = sorted(splits[config, split], key=lambda file: file.path)
    return Listing(replace(spec, config=config, split=split), tuple(chosen))


def _config_and_split(path: str) -> tuple[str, str]:
    """Of the converted branch ``config/split/0000.parquet``; else folder and start of the name."""
    *folders, name = path.split("/")
    if len(folders) >= 2:
        return folders[-2], folders[-1].removeprefix("partial-")
    return (folders[0] if folders else "default"), name.split("-")[0].removesuffix(".parquet")


def _choose(kind: str, wanted: str, usual: str, names: list[str], spec: DatasetSpec) -> str:
    choices = sorted(set(names))
    choice = wanted if wanted not in ("", "-") else usual
    if choice in choices:
        return choice
    if choices and wanted in ("", "-"):
        return choices[0]
    raise DataError(
        f"The dataset {spec.repo} has no {kind} named {choice}.",
        do=f"It has: {', '.join(choices[:20])}." if choices else "It has no parquet files.",
    )


async def list_files(port: DataPort, retry: Retry, hub: str, spec: DatasetSpec) -> Listing:
    """The parquet files of a dataset, in as few requests as the Hub's pages allow.

    A dataset that the Hub has not converted may itself be parquet: then its own files are used.
    """
    try:
        return await _list_revision(port, retry, hub, spec)
    except PortFailure as failure:
        if failure.status != 404 or spec.revision != CONVERTED:
            raise
        return await _list_revision(port, retry, hub, replace(spec, revision="main"))


async def _list_revision(port: DataPort, retry: Retry, hub: str, spec: DatasetSpec) -> Listing:
    files: list[RemoteFile] = []
    address = tree_address(hub, spec)
    for _ in range(MAX_PAGES):
        here = address
        answer = await retry.run(
            f"the list of files of {spec.repo}",
            lambda here=here: port.read_json(DataFile(here), MAX_ANSWER_BYTES),  # type: ignore[misc]
        )
        try:
            files += parquet_files(json.loads(answer.text))
        except ValueError as cause:
            raise DataError(f"The Hub's list of files is not JSON ({cause}).") from cause
        address = urljoin(here, answer.next_page) if answer.next_page else ""
        if not address or len(files) > MAX_FILES:
            break
        if urlsplit(address).netloc != urlsplit(hub).netloc:
            raise DataError("The Hub's list of files goes on at another host.")
    if not files:
        raise DataError(
            f"The dataset {spec.repo} has no parquet files.",
            do="Choose a dataset whose page on the Hub shows a viewer.",
        )
    return choose_split(spec, files)
