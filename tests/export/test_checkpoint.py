"""Checkpoints: what is written is read, a run goes on to the same bits, bad files are refused."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.errors import DataError
from daisychain.export import archive
from daisychain.export.archive import Archive, Entry, pack
from daisychain.export.checkpoint import Checkpoint, read_archive, write_checkpoint
from daisychain.model.llama import moment_buffers
from daisychain.settings import RANGES
from tests.export.models import VOCABULARY, foreign, resumed_hash, trained


def archived(checkpoint: Checkpoint, dtype: str = "F32") -> bytes:
    return b"".join(asyncio.run(write_checkpoint(checkpoint, dtype)))


def opened(data: bytes) -> Checkpoint:
    return asyncio.run(read_archive(data))


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_STORED, folder: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        for name, data in files.items():
            made.writestr(folder + name, data)
    return out.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        assert found.testzip() is None
        assert all(info.compress_type == zipfile.ZIP_STORED for info in found.infolist())
        return {name: found.read(name) for name in found.namelist()}


def unsealed(data: bytes) -> dict[str, bytes]:
    """The files of somebody else's model: no manifest, no run."""
    files = unzipped(data)
    return {n: c for n, c in files.items() if n != "manifest.json" and "/" not in n}


@pytest.mark.parametrize("tied", [True, False])
def test_what_was_written_is_read(tied: bool) -> None:
    checkpoint = trained(tied=tied)
    found = opened(archived(checkpoint))
    assert found == checkpoint


def test_equal_checkpoints_are_equal_files() -> None:
    assert archived(trained()) == archived(trained())


def test_a_run_goes_on_to_the_same_bits() -> None:
    whole = trained(6).run
    assert whole is not None
    assert resumed_hash(opened(archived(trained(3))), 6) == whole.weights_hash


def test_others_see_a_model_without_padding() -> None:
    files = unzipped(archived(trained()))
    assert {n for n in files if "/" not in n} == {
        "config.json",
        "generation_config.json",
        "manifest.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    tensors = safetensors.numpy.load(files["model.safetensors"])
    config = json.loads(files["config.json"])
    assert tensors["model.embed_tokens.weight"].shape == (VOCABULARY, 16)
    assert config["vocab_size"] == VOCABULARY
    assert config["rms_norm_eps"] == 2.0**-20
    assert "lm_head.weight" not in tensors
    assert all(t.dtype == np.float32 for t in tensors.values())


def test_bfloat16_holds_the_model_alone() -> None:
    checkpoint = trained()
    data = archived(checkpoint, "BF16")
    found = opened(data)
    assert found.run is None
    for name, exact in checkpoint.weights().items():
        a, b = (np.frombuffer(d, np.float32) for d in (exact, found.weights()[name]))
        rows = slice(0, VOCABULARY * 16)
        assert np.allclose(a[rows], b[rows], rtol=2.0**-8, atol=0)
    assert len(data) < len(archived(replace(checkpoint, run=None)))


def test_what_the_log_cannot_show_is_left_out() -> None:
    run = trained().run
    assert run is not None
    log = [
        {"step": 1, "loss": "<b>", "note": 3, "hash": "ab", "members": [1]},
        {"loss": 2.0},
        {"step": 2, "loss": 2.5, "lr": True, "note": "a note"},
    ]
    facts = {"loss": 1.5, "devices": "x" * 1000, "list": [1], "true": True}
    odd = replace(trained(), run=replace(run, log=log), facts=facts)
    found = opened(archived(odd))
    assert found.run is not None
    assert found.run.log == [
        {"step": 1, "hash": "ab"},
        {"step": 2, "loss": 2.5, "note": "a note"},
    ]
    assert found.facts == {"loss": 1.5, "devices": "x" * 500}


def test_numbers_that_json_cannot_hold_are_left_out() -> None:
    run = trained().run
    assert run is not None
    log = [{"step": 1, "loss": float("inf"), "lr": float("nan"), "tokens": 5}]
    found = opened(archived(replace(trained(), run=replace(run, log=log))))
    assert found.run is not None
    assert found.run.log == [{"step": 1, "tokens": 5}]
    spoilt = resealed("daisychain/log.jsonl", lambda _: b'{"step": 2, "loss": 1e999, "ms": 3}\n')
    again = opened(archived(opened(spoilt))).run
    assert again is not None
    assert again.log == [{"step": 2, "ms": 3}]


def test_the_newest_records_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daisychain.export.checkpoint.LOG_RECORDS", 2)
    log = b"".join(json.dumps({"step": n}).encode() + b"\n" for n in range(5))
    for data in (archived(trained(6)), resealed("daisychain/log.jsonl", lambda _: log)):
        run = opened(data).run
        assert run is not None
        assert [record["step"] for record in run.log] in ([5, 6], [3, 4])


def test_repacked_by_other_programs() -> None:
    files = unzipped(archived(trained()))
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        for folder in ("", "my model/"):
            files_of_mac = {"__MACOSX/._x": b"1"} | files
            assert opened(zipped(files, method, folder)) == trained()
            assert opened(zipped(files_of_mac, method)) == trained()


def test_somebody_elses_model() -> None:
    model = foreign(trained().config)
    files = unsealed(archived(model))
    config = json.loads(files["config.json"]) | {"rms_norm_eps": 1e-5, "rope_scaling": None}
    found = opened(zipped(files | {"config.json": json.dumps(config).encode()}))
    assert found.run is None
    assert found.weights() == model.weights()
    assert "rms_norm_eps is 1e-05" in found.notices[0]


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_short_floats_of_others(kind: str) -> None:
    model = foreign(trained().config)
    files = unsealed(archived(model))
    tensors = safetensors.numpy.load(files["model.safetensors"])
    if kind == "F16":
        halves = {name: t.astype(np.float16) for name, t in tensors.items()}
        files["model.safetensors"] = safetensors.numpy.save(halves)
    else:
        files = unsealed(archived(model, "BF16"))
    found = opened(zipped(files))
    for name, exact in model.weights().items():
        a, b = (np.frombuffer(d, np.float32) for d in (exact, found.weights()[name]))
        assert np.allclose(a, b, rtol=2.0**-8, atol=1e-7)


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"model_type": "mistral"}, "architecture is 'mistral'"),
    "activation": ({"hidden_act": "gelu"}, "activation is 'gelu'"),
    "biases": ({"attention_bias": True}, "attention_bias"),
    "quantized": ({"quantization_config": {"bits": 4}}, "quantization_config"),
    "positions": ({"rope_theta": 500000.0}, "rotary positions"),
    "scaled": ({"rope_scaling": {"type": "linear"}}, "scales its rotary"),
    "parameters": ({"rope_parameters": {"rope_type": "llama3"}}, "scales its rotary"),
    "epsilon": ({"rms_norm_eps": 1e-3}, "rms_norm_eps"),
    "heads": ({"num_attention_heads": 3}, "cannot be divided|heads"),
    "width": ({"hidden_size": 10**9}, "hidden_size"),
    "layers": ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
    "text": ({"num_hidden_layers": "2"}, "num_hidden_layers"),
    "vocabulary": ({"vocab_size": 10**9}, "vocabulary"),
    "tied": ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    "head width": ({"head_dim": 4}, "heads are not"),
    "large": (
        {"hidden_size": 4096, "num_hidden_layers": 64, "num_attention_heads": 64, "head_dim": 64,
         "num_key_value_heads": 64, "intermediate_size": 16384},
        "parameters",
    ),
    "shapes": ({"num_hidden_layers": 1}, "does not have"),
    "missing": ({"num_hidden_layers": 3}, "is missing"),
    "other shape": ({"intermediate_size": 40}, "has the shape"),
    "end of text": ({"eos_token_id": 99}, "ends a text"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_models_that_do_not_fit_are_refused(name: str) -> None:
    change, reason = CONFIGS[name]
    files = unsealed(archived(trained()))
    config = json.loads(files["config.json"]) | change
    files["config.json"] = json.dumps(config).encode()
    with pytest.raises(DataError, match=reason):
        opened(zipped(files))


def test_numbers_that_are_not_finite_are_refused() -> None:
    files = unsealed(archived(trained()))
    tensors = safetensors.numpy.load(files["model.safetensors"])
    for bad in (np.nan, np.inf):
        tensors["model.norm.weight"][3] = bad
        spoilt = files | {"model.safetensors": safetensors.numpy.save(tensors)}
        with pytest.raises(DataError, match="not finite"):
            opened(zipped(spoilt))


def test_integers_are_no_weights() -> None:
    files = unsealed(archived(trained()))
    tensors = safetensors.numpy.load(files["model.safetensors"])
    tensors["model.norm.weight"] = np.ones(16, np.int32)
    files["model.safetensors"] = safetensors.numpy.save(tensors)
    with pytest.raises(DataError, match="of the type I32"):
        opened(zipped(files))


def test_split_models_are_refused() -> None:
    files = unsealed(archived(trained()))
    del files["model.safetensors"]
    with pytest.raises(DataError, match="split over several files"):
        opened(zipped(files | {"model.safetensors.index.json": b"{}"}))


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors", "daisychain/run.json",
             "daisychain/state.safetensors", "daisychain/log.jsonl", "daisychain/about.json"],
)  # fmt: skip
def test_a_changed_file_is_refused(name: str) -> None:
    files = unzipped(archived(trained()))
    data = bytearray(files[name])
    data[len(data) // 2] ^= 1
    with pytest.raises(DataError, match="hash differs"):
        opened(zipped(files | {name: bytes(data)}))


@pytest.mark.parametrize("name", ["manifest.json", "daisychain/state.safetensors"])
def test_a_missing_file_is_refused(name: str) -> None:
    files = unzipped(archived(trained()))
    del files[name]
    with pytest.raises(DataError, match=f"no file {name}"):
        opened(zipped(files))


def resealed(name: str, change: Callable[[bytes], bytes]) -> bytes:
    """A checkpoint with a file changed by somebody who also changed the manifest."""
    files = unzipped(archived(trained()))
    files[name] = change(files[name])
    manifest = json.loads(files["manifest.json"])
    manifest["files"][name]["sha256"] = hashlib.sha256(files[name]).hexdigest()
    files["manifest.json"] = json.dumps(manifest).encode()
    return zipped(files)


RUNS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "step": (lambda r: r.update(step=7), "malformed"),
    "negative": (lambda r: r.update(step=-1), "malformed"),
    "true": (lambda r: r.update(step=True), "malformed"),
    "hash": (lambda r: r.update(weights_hash="../etc"), "malformed"),
    "cursor": (lambda r: r.update(cursor=3), "malformed"),
    "setting": (lambda r: r["settings"].update(width="ten"), "not possible here"),
    "unknown setting": (lambda r: r["settings"].update(wide="1"), "newer version"),
    "another model": (lambda r: r["settings"].update(context="24"), "differ in context"),
    "fewer slices": (lambda r: r.update(slices=2), "malformed"),
    "absurd slices": (lambda r: r.update(slices=3 * 1_024 + 1), "malformed"),
    "slices in words": (lambda r: r.update(slices="3"), "malformed"),
    "long cursor": (lambda r: r.update(cursor={"source": "x" * 5_000}), "malformed"),
}


@pytest.mark.parametrize("name", RUNS)
def test_hostile_runs_are_refused(name: str) -> None:
    change, reason = RUNS[name]

    def changed(data: bytes) -> bytes:
        record = json.loads(data)
        change(record)
        return json.dumps(record).encode()

    with pytest.raises(DataError, match=reason):
        opened(resealed("daisychain/run.json", changed))


def state_with(change: Callable[[dict[str, Any]], object]) -> bytes:
    def changed(data: bytes) -> bytes:
        tensors = safetensors.numpy.load(data)
        change(tensors)
        return safetensors.numpy.save(tensors)

    return resealed("daisychain/state.safetensors", changed)


MOMENT = moment_buffers("model.norm.weight")[0]
STATES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "NaN": (lambda t: t[MOMENT].fill(np.nan), "not finite"),
    "superfluous": (lambda t: t.update(more=t[MOMENT]), "malformed"),
    "missing": (lambda t: t.pop(MOMENT), "malformed"),
    "shape": (lambda t: t.update({MOMENT: t[MOMENT].reshape(4, 4)}), "malformed"),
    "type": (lambda t: t.update({MOMENT: t[MOMENT].view(np.int32)}), "malformed"),
}


@pytest.mark.parametrize("name", STATES)
def test_hostile_states_are_refused(name: str) -> None:
    change, reason = STATES[name]
    with pytest.raises(DataError, match=reason):
        opened(state_with(change))


def test_a_damaged_file_of_somebody_else_is_refused() -> None:
    data = bytearray(zipped(unsealed(archived(trained()))))
    at = data.index(b"model.safetensors") + 1_000
    data[at] ^= 1
    with pytest.raises(DataError, match="checksum of the file model"):
        opened(bytes(data))


def test_a_longer_context_and_constants_of_others_are_taken() -> None:
    files = unsealed(archived(foreign(trained().config)))
    config = json.loads(files["config.json"]) | {"max_position_embeddings": 131_075}
    tensors = safetensors.numpy.load(files["model.safetensors"])
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    files["config.json"] = json.dumps(config).encode()
    files["model.safetensors"] = safetensors.numpy.save(tensors)
    found = opened(zipped(files))
    assert found.config == replace(trained().config, context=RANGES["context"].most)
    assert found.notices == ()


def test_another_version_is_refused() -> None:
    files = unzipped(archived(trained()))
    manifest = json.loads(files["manifest.json"]) | {"version": 2}
    files["manifest.json"] = json.dumps(manifest).encode()
    with pytest.raises(DataError, match="another version"):
        opened(zipped(files))


def test_bombs_are_not_unpacked() -> None:
    bomb = zipped({"config.json": bytes(50 << 20)}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    with pytest.raises(DataError, match="may have"):
        opened(bomb)
    files = unsealed(archived(trained())) | {"model.safetensors": bytes(50 << 20)}
    with pytest.raises(DataError, match="may have"):
        opened(zipped(files, zipfile.ZIP_DEFLATED))


def test_a_directory_that_lies_about_a_size_is_refused() -> None:
    data = zipped({"config.json": bytes(1 << 20)}, zipfile.ZIP_DEFLATED)
    size = (1 << 20).to_bytes(4, "little")
    at = data.rindex(size)
    lying = data[:at] + (10).to_bytes(4, "little") + data[at + 4 :]
    with pytest.raises(DataError):
        Archive(lying).read("config.json", 100)


def test_absurd_archives_are_refused() -> None:
    many = zipped({f"{i}.txt": b"" for i in range(archive.MAX_ENTRIES + 1)})
    for data, reason in ((many, "lists"), (b"PK", "directory"), (b"hello", "no checkpoint")):
        with pytest.raises(DataError, match=reason):
            opened(data)
    whole = archived(trained())
    for cut in (1, 100, len(whole) // 2, len(whole) - 10):
        with pytest.raises(DataError):
            opened(whole[:cut])


def test_entries_that_overlap_give_nothing_else_than_their_bytes() -> None:
    """Two names for one place, as in bombs of overlapping files: refused or the very bytes."""
    data = b"".join(asyncio.run(pack([Entry("a", [memoryview(b"x" * 99)])])))
    first = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry = data[first:end]
    other = entry[:-1] + b"b"
    tail = bytearray(data[end:])
    tail[8:12] = (2).to_bytes(2, "little") * 2
    tail[12:16] = (2 * len(entry)).to_bytes(4, "little")
    found = Archive(data[:first] + entry + other + bytes(tail))
    assert list(found.names()) == ["a", "b"]
    assert bytes(found.read("b", 100)) == b"x" * 99
    with pytest.raises(DataError, match="may have"):
        found.read("b", 98)


def test_names_that_occur_twice_are_refused() -> None:
    parts = [Entry("a", [memoryview(b"1")]), Entry("a", [memoryview(b"2")])]
    with pytest.raises(DataError, match="twice"):
        Archive(b"".join(asyncio.run(pack(parts))))


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_damage_never_raises_anything_else(changes: list[tuple[float, int]]) -> None:
    files = {"config.json": b"{}" * 40, "a": b"a" * 200}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        data = bytearray(zipped(files, method))
        for place, value in changes:
            data[int(place * (len(data) - 1))] = value
        with contextlib.suppress(DataError):
            found = Archive(bytes(data))
            for name in found.names():
                assert len(found.read(name, 300)) <= 300
