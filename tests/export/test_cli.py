"""python3 -m daisychain on a small checkpoint."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from daisychain import cli
from daisychain.data.byte_pairs import BytePairs
from daisychain.export.checkpoint import write_checkpoint
from daisychain.generate import Sampling, generate
from tests.export.models import SEPARATOR, trained, trainer_for, views
from tests.export.models import train as train_on
from tools.bootstrap import ROOT


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.zip"
    path.write_bytes(b"".join(asyncio.run(write_checkpoint(trained()))))
    return path


def test_info(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", str(saved)]) == 0
    out = capsys.readouterr().out
    run = trained().run
    assert run is not None
    for text in ("3 of 6", run.weights_hash, "embedded", "width 16", "NumPy", "261 tokens, tied"):
        assert text in out
    assert out.count(run.weights_hash) == 1
    assert "loss        5.0000" in out


def test_as_a_module(saved: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "daisychain", "info", str(saved)],
        env={"PYTHONPATH": str(ROOT / "app")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "3 of 6" in done.stdout


def test_generation_gives_the_tokens_of_the_training_program(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = BytePairs(trained().tokenizer)
    prompt = [SEPARATOR[0], *pairs.encode("the thin")]

    async def expected() -> list[int]:
        run = trained().run
        assert run is not None
        trainer = await trainer_for(run.settings)
        await train_on(trainer, 3)
        assert views((await trainer.snapshot()).buffers) == trained().buffers
        config = trainer.model.config
        steps = generate(trainer.player, config.context, config.vocabulary, prompt, 8, Sampling())
        return [choice.token async for choice in steps]

    tokens = asyncio.run(expected())
    assert SEPARATOR[0] not in tokens
    arguments = ["generate", str(saved), "--prompt", "the thin", "--tokens", "8"]
    assert cli.main(arguments) == 0
    text = b"".join(map(pairs.token_bytes, tokens)).decode("utf-8", "replace")
    captured = capsys.readouterr()
    assert captured.out == f"the thin{text}\n"
    assert captured.err.startswith("8 tokens")


def test_sampling_has_a_seed(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        hot = ["--temperature", "2", "--top-k", "200", "--seed", seed]
        assert cli.main(["generate", str(saved), "--tokens", "20", *hot]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_convert(saved: Path, tmp_path: Path) -> None:
    out, back = tmp_path / "folder", tmp_path / "back.zip"
    assert cli.main(["convert", str(saved), str(out), "--dtype", "bfloat16"]) == 0
    assert {path.name for path in out.iterdir()} >= {"config.json", "model.safetensors"}
    assert cli.main(["convert", str(out), str(back)]) == 0
    assert cli.open_checkpoint(back).config == trained().config
    whole = tmp_path / "whole.zip"
    assert cli.main(["convert", str(saved), str(whole)]) == 0
    assert whole.read_bytes() == saved.read_bytes()
    assert cli.main(["convert", str(saved), str(tmp_path / "bare.zip"), "--no-state"]) == 0
    assert cli.open_checkpoint(tmp_path / "bare.zip").run is None


def test_troubles_are_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.zip"
    bad.write_bytes(b"PK nonsense")
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, reason in ((bad, "damaged"), (empty, "no file config.json"), (tmp_path / "x", "x")):
        assert cli.main(["info", str(path)]) == 1
        error = capsys.readouterr().err
        assert reason in error
        assert "Traceback" not in error


def test_wrong_wishes_are_sentences(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = tmp_path / "large.zip"
    with large.open("wb") as file:
        file.truncate(1 << 40)  # sparse: it is not read to its end
    for arguments, reason in (
        (["generate", str(saved), "--tokens", "0"], "1 or more"),
        (["generate", str(saved), "--temperature", "-1"], "temperature"),
        (["convert", str(saved), str(tmp_path / "a/b/c.zip")], "cannot be written"),
        (["info", str(large)], "no checkpoint"),
    ):
        assert cli.main(arguments) == 1
        assert reason in capsys.readouterr().err


def test_a_run_in_a_folder(saved: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        archive.extractall(tmp_path / "unpacked")
    assert cli.open_checkpoint(tmp_path / "unpacked") == trained()


def test_a_text_that_the_terminal_cannot_show(saved: Path) -> None:
    hot = ["--tokens", "30", "--temperature", "9", "--seed", "4", "--prompt", "\u00fc\u4e2d"]
    done = subprocess.run(
        [sys.executable, "-m", "daisychain", "generate", str(saved), *hot],
        env={"PYTHONPATH": str(ROOT / "app"), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.startswith(b"??")


def test_nothing_is_overwritten(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = saved.read_bytes()
    assert cli.main(["convert", str(saved), str(saved)]) == 1
    assert "there already" in capsys.readouterr().err
    assert saved.read_bytes() == before
