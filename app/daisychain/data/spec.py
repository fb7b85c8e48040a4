"""The names of data: ``embedded``, ``fineweb-edu``, ``owner/name[/config[/split]][:column]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from daisychain.errors import SettingsError

EMBEDDED = "embedded"
OWN_FILE = "file"
FINEWEB_EDU = "fineweb-edu"
CONVERTED = "refs/convert/parquet"
"""The branch on which the Hub keeps every dataset as parquet."""

_NAME = r"[A-Za-z0-9](?:[\w.\-]{0,95})"
_SPEC = re.compile(
    rf"(?P<repo>{_NAME}/{_NAME})(?:/(?P<config>[\w.\-]+)(?:/(?P<split>[\w.\-]+))?)?"
    r"(?::(?P<column>[^:/]{1,200}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class DatasetSpec:
    """A dataset of the Hub; empty parts mean the usual choice."""

    repo: str
    config: str = ""
    split: str = ""
    column: str = ""
    revision: str = CONVERTED
    folder: str = ""
    """Where the files lie in the revision; empty for all of it."""

    @property
    def name(self) -> str:
        parts = [self.repo, self.config or ("-" if self.split else ""), self.split]
        column = f":{self.column}" if self.column else ""
        return "/".join(part for part in parts if part) + column


FINEWEB_EDU_SPEC = DatasetSpec(
    repo="HuggingFaceFW/fineweb-edu",
    config="sample-10BT",
    split="train",
    column="text",
    revision="main",
    folder="sample/10BT",
)
"""The originals: the converted branch holds only a part of so large a dataset."""


def is_dataset(spec: str) -> bool:
    """Whether a text names a dataset of the Hub."""
    return spec == FINEWEB_EDU or (_SPEC.fullmatch(spec) is not None and ".." not in spec)


def is_repository(name: str) -> bool:
    """Whether a text is ``owner/name``, as repositories of the Hub are called."""
    return re.fullmatch(f"{_NAME}/{_NAME}", name, re.ASCII) is not None and ".." not in name


def parse_dataset(spec: str) -> DatasetSpec:
    """The dataset that a spec names.  Raises SettingsError for anything else."""
    if spec == FINEWEB_EDU:
        return FINEWEB_EDU_SPEC
    match = _SPEC.fullmatch(spec)
    if match is None or not is_dataset(spec):
        raise SettingsError(
            f"There are no data named {spec[:100]!r}.",
            do=f"Choose {EMBEDDED}, {FINEWEB_EDU} or a dataset of the Hub as owner/name.",
        )
    parts = {key: value or "" for key, value in match.groupdict().items()}
    if parts["repo"] == FINEWEB_EDU_SPEC.repo and parts["config"] in ("", FINEWEB_EDU_SPEC.config):
        return FINEWEB_EDU_SPEC
    return DatasetSpec(**parts)
