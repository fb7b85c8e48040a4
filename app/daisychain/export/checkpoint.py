"""Checkpoints: one zip with a Hugging Face folder and, beside it, all that a run needs to go on.

=============================  ===============================================================
``model.safetensors`` and the  the model for everybody, see ``export.hugging_face``
other files at the top
``daisychain/about.json``      what the run was, for people
``daisychain/run.json``        step, settings, data cursor, the weights' hash; a room's next slice
``daisychain/state.safetensors``  AdamW's moments; the rows that only pad the vocabulary
``daisychain/residuals.safetensors``  of a room: what error feedback owes, see ``residuals``
``daisychain/log.jsonl``       the newest records of the log
``manifest.json``              bytes and sha256 of every file
=============================  ===============================================================

Reading is strict: sizes are checked against the model's shape before anything is unpacked, and
every file against its hash.  A model of somebody else has the files at the top alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from daisychain.cluster.machine import Owed
from daisychain.errors import DataError, SettingsError
from daisychain.export import hugging_face as hf
from daisychain.export.archive import Archive, Entry, Files, chunks, pack
from daisychain.export.json_files import MAX_JSON_BYTES, read_object, whole, write_object
from daisychain.export.lanes import is_finite
from daisychain.export.residuals import (
    RESIDUALS_FILE,
    decode_residuals,
    encode_residuals,
    residuals_limit,
)
from daisychain.export.safetensors import MAX_HEADER_BYTES, Tensor, TensorFile, decode, encode
from daisychain.model.config import EMBEDDING, HEAD, ModelConfig, Parameter, parameters
from daisychain.model.llama import moment_buffers, weight_buffer
from daisychain.settings import LINK_NAMES, Settings, parse_value, resolve

FORMAT = "daisychain-checkpoint"
VERSION = 1
OWN_FOLDER = "daisychain"
ABOUT_FILE = f"{OWN_FOLDER}/about.json"
RUN_FILE = f"{OWN_FOLDER}/run.json"
STATE_FILE = f"{OWN_FOLDER}/state.safetensors"
LOG_FILE = f"{OWN_FOLDER}/log.jsonl"
MANIFEST_FILE = "manifest.json"

MAX_TOKENIZER_BYTES = 1 << 26
MAX_LOG_BYTES = 1 << 24
MAX_CURSOR_CHARACTERS = 4_000
LOG_RECORDS = 5_000
"""The newest records that a checkpoint keeps."""

HEAD_BYTES = 16
"""Of a file, enough to see what it is."""

MAX_FACTS = 64
MAX_FACT_CHARACTERS = 500

Facts = Mapping[str, str | int | float]
"""Short values by name, such as ``devices`` or ``loss``."""

RUN_SETTINGS = tuple(
    name
    for name in LINK_NAMES
    if name not in ("start", "player", "relay", "stun", "approve", "name", "hub")
)
"""Settings that a checkpoint keeps: nothing of the device or the person that trained it."""

LOG_NUMBERS = (
    "step",
    "loss",
    "lr",
    "gradient_norm",
    "tokens",
    "tokens_per_s",
    "gpu_ms",
    "host_ms",
    "data_ms",
    "exchange_ms",
    "ms",
    "heldout_nats",
    "heldout_bits_per_byte",
)
LOG_TEXTS = ("note", "hash", "reduced_hash", "sample", "prompt")
MAX_SLICES_A_STEP = 1_024


@dataclass(frozen=True)
class Run:
    """Where a run stands.

    ``slices`` is the next slice of the numbering that a room's run has, None for a run that was
    never in a room; ``owed`` is what this device's error feedback owes, if anything.
    """

    settings: Settings
    step: int
    weights_hash: str
    cursor: Mapping[str, Any]
    log: Sequence[Mapping[str, Any]] = ()
    slices: int | None = None
    owed: Owed | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Checkpoint:
    """A model and, if it is ours, its run.

    ``buffers`` holds binary32 weights, and a run's moments, under the names of the program's
    buffers; ``tokenizer`` is the content of tokenizer.json; ``separator`` its token between
    documents, with its name.  ``facts`` tell people about it and decide nothing.
    """

    config: ModelConfig
    buffers: Mapping[str, memoryview] = field(repr=False)
    tokenizer: bytes = field(repr=False)
    separator: tuple[int, str]
    run: Run | None = None
    facts: Facts = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    def weights(self) -> dict[str, memoryview]:
        """binary32 weights by parameter name."""
        return {p.name: self.buffers[weight_buffer(p.name)] for p in parameters(self.config)}


# ------------------------------------------------------------------ writing


def model_entries(checkpoint: Checkpoint, dtype: str = "F32") -> list[Entry]:
    """The files of the Hugging Face folder; ``dtype`` of the weights is F32 or BF16."""
    config, metadata = checkpoint.config, {"format": "pt"}
    tensors = hf.model_tensors(config, checkpoint.weights(), dtype)
    files = hf.config_files(config, *checkpoint.separator)
    files[hf.TOKENIZER_FILE] = checkpoint.tokenizer
    if checkpoint.facts:
        files[ABOUT_FILE] = write_object(dict(checkpoint.facts))
    small = [Entry(name, [memoryview(data)]) for name, data in files.items()]
    return [*small, Entry(hf.WEIGHTS_FILE, encode(tensors, metadata))]


def state_entries(checkpoint: Checkpoint) -> list[Entry]:
    """The files that a run goes on from; none for a model without a run."""
    run = checkpoint.run
    if run is None:
        return []
    record = {
        "step": run.step,
        "weights_hash": run.weights_hash,
        "settings": {name: _setting_text(run.settings, name) for name in RUN_SETTINGS},
        "cursor": dict(run.cursor),
        **({} if run.slices is None else {"slices": run.slices}),
    }
    records = (_logged(record) for record in run.log[-LOG_RECORDS:])
    log = "".join(f"{json.dumps(r, separators=(',', ':'))}\n" for r in records)
    entries = [
        Entry(RUN_FILE, [memoryview(write_object(record))]),
        Entry(LOG_FILE, [memoryview(log.encode())]),
        Entry(STATE_FILE, encode(_state_tensors(checkpoint), {})),
    ]
    if run.owed is not None:
        entries.append(Entry(RESIDUALS_FILE, encode_residuals(run.owed, checkpoint.config)))
    return entries


async def write_checkpoint(checkpoint: Checkpoint, dtype: str = "F32") -> list[memoryview]:
    """A whole archive as parts; as BF16 it holds the model alone."""
    entries = model_entries(checkpoint, dtype)
    if dtype == "F32":
        entries += state_entries(checkpoint)
    return await pack([*entries, await _manifest(entries)])


async def _manifest(entries: Sequence[Entry]) -> Entry:
    files = {}
    for entry in entries:
        files[entry.name] = {"bytes": entry.size_bytes, "sha256": await _sha256(entry.parts)}
    content = {"format": FORMAT, "version": VERSION, "files": files}
    return Entry(MANIFEST_FILE, [memoryview(write_object(content))])


async def _sha256(parts: Sequence[memoryview]) -> str:
    digest = hashlib.sha256()
    async for piece in chunks(parts):
        digest.update(piece)
    return digest.hexdigest()


def _setting_text(settings: Settings, name: str) -> str:
    value = getattr(settings, name)
    return str(int(value) if isinstance(value, bool) else value)


def _state_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Moments, and what model.safetensors leaves out of the weights."""
    tensors = {}
    for p in parameters(checkpoint.config):
        for name in moment_buffers(p.name):
            tensors[name] = Tensor("F32", (p.rows, p.cols), checkpoint.buffers[name])
        if rows := _padding_rows(checkpoint.config, p):
            data = checkpoint.buffers[weight_buffer(p.name)][-4 * rows * p.cols :]
            tensors[_padding_name(p)] = Tensor("F32", (rows, p.cols), data)
    return tensors


def _padding_rows(config: ModelConfig, p: Parameter) -> int:
    return p.rows - config.vocabulary if p.name in (EMBEDDING, HEAD) else 0


def _padding_name(p: Parameter) -> str:
    return f"padding {p.name}"


# ------------------------------------------------------------------ reading


async def read_archive(data: bytes) -> Checkpoint:
    """The checkpoint in a zip archive.  Raises DataError for the first thing that is wrong."""
    check_head(data[:HEAD_BYTES])
    return await read_checkpoint(Archive(data))


def check_head(head: bytes) -> None:
    """Raises DataError when a file that begins so is no archive, before the rest is read."""
    if head.lower().startswith(b"<!doctype html"):
        raise DataError(
            "This file is a page, perhaps an inference kit, and no checkpoint.",
            "A kit opens by a double click; a run goes on from a checkpoint, which is a .zip.",
            "Choose the .zip.",
        )
    if not head.startswith(b"PK"):
        raise DataError(
            "This file is no checkpoint.",
            "A checkpoint is a .zip with config.json, model.safetensors and tokenizer.json.",
            "Choose such a file.",
        )


async def read_checkpoint(files: Files) -> Checkpoint:
    """The checkpoint in an archive or a folder."""
    names = files.names()
    if hf.SHARDS_FILE in names and hf.WEIGHTS_FILE not in names:
        raise DataError(
            "This model is split over several files.",
            "Only models in one model.safetensors can be read.",
            "Choose a smaller model, or save it in one file.",
        )
    checked = _Checked(files, is_sealed=bool({MANIFEST_FILE, RUN_FILE} & set(names)))
    config_json = await checked.read(hf.CONFIG_FILE, MAX_JSON_BYTES)
    found = hf.read_config(config_json)
    config = found.config
    limit = 4 * sum(p.count for p in parameters(config)) + MAX_HEADER_BYTES
    weights = hf.read_weights(config, decode(await checked.read(hf.WEIGHTS_FILE, limit)))
    buffers = {weight_buffer(name): data for name, data in weights.items()}
    tokenizer = bytes(await checked.read(hf.TOKENIZER_FILE, MAX_TOKENIZER_BYTES))
    separator = _separator(config_json, tokenizer, config)
    run = None
    if RUN_FILE in names:
        run = await _read_run(checked, config)
        _read_state(decode(await checked.read(STATE_FILE, 2 * limit)), config, buffers)
        if RESIDUALS_FILE in names:
            run = replace(run, owed=await _read_residuals(checked, config))
    facts = await _read_facts(checked) if ABOUT_FILE in names else {}
    return Checkpoint(config, buffers, tokenizer, separator, run, facts, found.notices)


class _Checked:
    """Files of which those of a sealed checkpoint must be as the manifest says."""

    def __init__(self, files: Files, is_sealed: bool) -> None:
        self._files, self._is_sealed = files, is_sealed
        self._listed: dict[str, Any] = {}
        if is_sealed:
            self._read_manifest(files)

    def _read_manifest(self, files: Files) -> None:
        manifest = read_object(files.read(MANIFEST_FILE, MAX_JSON_BYTES), MANIFEST_FILE)
        if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
            raise DataError(
                "This checkpoint is of another version.",
                f"This program reads version {VERSION} of {FORMAT}.",
                "Open it with the program that wrote it.",
            )
        if isinstance(listed := manifest.get("files"), dict):
            self._listed = listed

    async def read(self, name: str, max_bytes: int) -> memoryview:
        data = self._files.read(name, max_bytes)
        if not self._is_sealed:
            return data
        entry = self._listed.get(name)
        if not isinstance(entry, dict) or entry.get("sha256") != await _sha256([data]):
            raise DataError(
                f"The file {name} of the checkpoint is not the one that was written.",
                "Its hash differs, so it is damaged or was changed; nothing of it is used.",
                "Choose another file, or an older save.",
            )
        return data


async def _read_run(files: _Checked, config: ModelConfig) -> Run:
    record = read_object(await files.read(RUN_FILE, MAX_JSON_BYTES), RUN_FILE)
    settings = _read_settings(record.get("settings"))
    step, cursor = whole(record.get("step"), 0, settings.steps), record.get("cursor")
    weights_hash, slices = record.get("weights_hash"), record.get("slices")
    if (
        step is None
        or (slices is not None and whole(slices, step, step * MAX_SLICES_A_STEP) is None)
        or not isinstance(cursor, dict)
        or len(json.dumps(cursor)) > MAX_CURSOR_CHARACTERS
        or not isinstance(weights_hash, str)
        or not re.fullmatch(r"[0-9a-f]{32}", weights_hash)
    ):
        raise _malformed(RUN_FILE)
    for name in ("width", "layers", "heads", "kv_heads", "hidden", "tied", "context"):
        if getattr(config, name) != getattr(settings, name):
            raise DataError(f"The checkpoint's settings and its model differ in {name}.")
    log = _read_log(bytes(await files.read(LOG_FILE, MAX_LOG_BYTES)))
    return Run(settings, step, weights_hash, cursor, log, slices)


async def _read_residuals(files: _Checked, config: ModelConfig) -> Owed:
    data = await files.read(RESIDUALS_FILE, residuals_limit(config) + MAX_HEADER_BYTES)
    return decode_residuals(decode(data), config)


def _read_settings(texts: Any) -> Settings:
    """Settings from their texts, each checked like one in a link."""
    if not isinstance(texts, dict):
        raise _malformed(RUN_FILE)
    if unknown := sorted(set(texts).difference(RUN_SETTINGS)):
        raise DataError(
            f"The checkpoint has the setting {unknown[0][:40]!r}, which is not known here.",
            "It was written by a newer version of this program.",
            "Open it with that version; its weights alone: python3 -m daisychain convert.",
        )
    try:
        given = {name: parse_value(name, str(text)[:1000]) for name, text in texts.items()}
        return resolve(given)
    except SettingsError as cause:
        raise DataError("The checkpoint's settings are not possible here.", cause.what) from cause


async def _read_facts(files: _Checked) -> Facts:
    """The facts that are short values; whatever else stands there is left out."""
    record = read_object(await files.read(ABOUT_FILE, MAX_JSON_BYTES), ABOUT_FILE)
    shown = [(k[:40], v) for k, v in record.items() if isinstance(v, str) or _is_number(v)]
    return {k: v[:MAX_FACT_CHARACTERS] if isinstance(v, str) else v for k, v in shown[:MAX_FACTS]}


def _read_log(data: bytes) -> list[dict[str, Any]]:
    """The records with a step, and in them what the page knows how to show."""
    out = []
    for line in data.splitlines()[-LOG_RECORDS:]:
        record = _logged(read_object(line, LOG_FILE))
        if type(record.get("step")) is int:
            out.append(record)
    return out


def _logged(record: Mapping[str, Any]) -> dict[str, Any]:
    """Of a record of the log what a checkpoint keeps."""
    numbers = {k: record[k] for k in LOG_NUMBERS if _is_number(record.get(k))}
    return numbers | {k: record[k] for k in LOG_TEXTS if isinstance(record.get(k), str)}


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and isfinite(value))


def _read_state(file: TensorFile, config: ModelConfig, buffers: dict[str, memoryview]) -> None:
    """Adds the moments to ``buffers`` and completes the rows of the vocabulary."""
    tensors = dict(file.tensors)
    for p in parameters(config):
        for name in moment_buffers(p.name):
            buffers[name] = _state_tensor(tensors, name, (p.rows, p.cols))
        if rows := _padding_rows(config, p):
            padding = _state_tensor(tensors, _padding_name(p), (rows, p.cols))
            kept = buffers[weight_buffer(p.name)][: -len(padding)]
            buffers[weight_buffer(p.name)] = memoryview(bytes(kept) + bytes(padding))
    if tensors:
        raise _malformed(STATE_FILE)


def _state_tensor(tensors: dict[str, Tensor], name: str, shape: tuple[int, int]) -> memoryview:
    tensor = tensors.pop(name, None)
    if tensor is None or tensor.dtype != "F32" or tensor.shape != shape:
        raise _malformed(STATE_FILE)
    if not is_finite(tensor.data):
        raise DataError(f"The checkpoint's {name!r} holds numbers that are not finite.")
    return tensor.data


def _separator(config_json: memoryview, tokenizer: bytes, config: ModelConfig) -> tuple[int, str]:
    """The token between documents, by id and name: the end-of-text token of config.json."""
    values = read_object(config_json, hf.CONFIG_FILE)
    token = values.get("eos_token_id")
    token = token[0] if isinstance(token, list) and token else token
    added = read_object(tokenizer, hf.TOKENIZER_FILE).get("added_tokens")
    for entry in added if isinstance(added, list) else ():
        if isinstance(entry, dict) and entry.get("id") == token:
            name = entry.get("content")
            if whole(token, 0, config.vocabulary - 1) is not None and isinstance(name, str):
                return int(str(token)), name
    raise DataError(
        "The model's tokenizer does not name the token that ends a text.",
        "Without it neither training nor generation can begin.",
        "Choose a model whose tokenizer.json lists its eos_token.",
    )


def _malformed(name: str) -> DataError:
    return DataError(
        f"The file {name} of the checkpoint is malformed.",
        "Nothing of it is used.",
        "Choose another file, or an older save.",
    )
