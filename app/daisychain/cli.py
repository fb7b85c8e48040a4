"""The command line: what can be done with a checkpoint in CPython.

    python3 -m daisychain info FILE
    python3 -m daisychain generate FILE --prompt "Once upon a time"
    python3 -m daisychain convert FILE OUT [--dtype bfloat16] [--no-state]
    python3 -m daisychain kit FILE OUT.html [--bits 8] [--site dist]

FILE is a checkpoint (.zip) or a folder in the Hugging Face layout.  Generation runs the very plans
of the page on the NumPy oracle, so it gives the very same tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from daisychain.data import IncrementalDecoder
from daisychain.data.byte_pairs import BytePairs
from daisychain.errors import DaisyChainError, DataError, DeviceError, SettingsError
from daisychain.export.archive import Entry
from daisychain.export.checkpoint import (
    HEAD_BYTES,
    OWN_FOLDER,
    Checkpoint,
    check_head,
    model_entries,
    read_archive,
    read_checkpoint,
    write_checkpoint,
)
from daisychain.export.kit import SCRIPT_FILE, KitParts, make_kit, read_narrow, shown_value
from daisychain.generate import Sampling, generate
from daisychain.model.config import parameter_count
from daisychain.model.decode import LOGITS
from daisychain.model.inference import LOAD, build_inference
from daisychain.model.llama import weight_buffer
from daisychain.players.player import Player
from daisychain.workshop import SAMPLE_PROMPT, make_check

TOLD_FACTS = ("parameters", "step", "steps", "weights_hash")
"""What ``info`` tells from the checkpoint itself."""

DTYPES = {"float32": "F32", "bfloat16": "BF16"}


class Folder:
    """A folder's files; see ``export.archive.Files``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> Sequence[str]:
        own = self._path / OWN_FOLDER
        found = [*self._path.iterdir(), *(own.iterdir() if own.is_dir() else ())]
        return [path.relative_to(self._path).as_posix() for path in found]

    def read(self, name: str, max_bytes: int) -> memoryview:
        path = self._path / name
        if not path.is_file():
            raise DataError(f"The folder has no file {name}.", do="Choose a whole checkpoint.")
        if path.stat().st_size > max_bytes:
            raise DataError(f"The file {name} is larger than the {max_bytes:,} bytes allowed.")
        return memoryview(path.read_bytes())


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file or a folder."""
    if path.is_dir():
        return asyncio.run(read_checkpoint(Folder(path)))
    try:
        with path.open("rb") as file:
            check_head(file.read(HEAD_BYTES))
        data = path.read_bytes()
    except OSError as cause:
        raise DataError(f"{path} cannot be read.", str(cause)) from cause
    return asyncio.run(read_archive(data))


# ------------------------------------------------------------------ commands


def info(options: argparse.Namespace) -> None:
    """Print what a checkpoint is."""
    checkpoint = open_checkpoint(options.file)
    config, run = checkpoint.config, checkpoint.run
    rows = {
        "parameters": f"{parameter_count(config):,}",
        "shape": f"{config.layers} layers, {config.heads} heads ({config.kv_heads} for keys and "
        f"values), width {config.width}, feed-forward {config.hidden}",
        "context": f"{config.context:,} tokens",
        "vocabulary": f"{config.vocabulary:,} tokens, "
        f"{'tied' if config.tied else 'untied'} embeddings",
    }
    if run is not None:
        rows |= {
            "step": f"{run.step:,} of {run.settings.steps:,}",
            "data": run.settings.data,
            "seed": str(run.settings.seed),
            "weights": run.weights_hash,
        }
        if run.slices is not None:
            owing = "" if run.owed is None else ", with what error feedback owes"
            rows["room"] = f"{run.slices:,} slices{owing}"
    else:
        rows["weights"] = f"sha256 {weights_digest(checkpoint)}"
    shown = {k: v for k, v in checkpoint.facts.items() if k not in TOLD_FACTS}
    rows |= {name.replace("_", " "): shown_value(v) for name, v in shown.items()}
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")
    for notice in checkpoint.notices:
        print(notice, file=sys.stderr)


def weights_digest(checkpoint: Checkpoint) -> str:
    """sha256 of the binary32 weights, one parameter after the other."""
    digest = hashlib.sha256()
    for data in checkpoint.weights().values():
        digest.update(data)
    return digest.hexdigest()


def generate_text(options: argparse.Namespace) -> None:
    """Print the prompt and what the model goes on with."""
    if options.tokens < 1:
        raise SettingsError("The number of tokens must be 1 or more.")
    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.seed)
    checkpoint = open_checkpoint(options.file)
    pairs = BytePairs(checkpoint.tokenizer)
    decoder = IncrementalDecoder(pairs)
    end = checkpoint.separator[0]

    async def run() -> int:
        player = await open_oracle(checkpoint)
        config, count = checkpoint.config, 0
        prompt = [end, *pairs.encode(options.prompt)]
        print(options.prompt, end="", flush=True)
        choices = generate(
            player, config.context, config.vocabulary, prompt, options.tokens, sampling
        )
        async for choice in choices:
            if choice.token == end:
                break
            count += 1
            print(decoder.push(choice.token), end="", flush=True)
        print(decoder.flush())
        return count

    start = time.perf_counter()
    count = asyncio.run(run())
    rate = count / max(time.perf_counter() - start, 1e-9)
    print(f"{count} tokens, {rate:.1f} tokens/s", file=sys.stderr)


async def open_oracle(checkpoint: Checkpoint) -> Player:
    """The NumPy oracle with the model loaded, ready to generate."""
    try:
        from daisychain.players.oracle import OraclePlayer
    except ImportError as cause:
        raise DeviceError(
            "There is nothing to compute with.",
            "The oracle needs NumPy and DaisyChain's source tree.",
            "Install NumPy, and set PYTHONPATH to the folder app of the repository.",
        ) from cause
    player = OraclePlayer()
    inference = build_inference(checkpoint.config, from_binary32=True)
    await player.load(inference.program)
    for name, data in checkpoint.weights().items():
        player.write(weight_buffer(name), data)
    await player.run([LOAD], LOGITS)
    return player


def convert(options: argparse.Namespace) -> None:
    """Write the checkpoint as a .zip or as a folder in the Hugging Face layout."""
    checkpoint, out = open_checkpoint(options.file), options.out
    dtype = DTYPES[options.dtype]
    if options.no_state:
        checkpoint = replace(checkpoint, run=None)
    if out.exists():
        raise DataError(f"{out} is there already.", do="Name another target.")
    if out.suffix == ".zip":
        with out.open("wb") as file:
            file.writelines(asyncio.run(write_checkpoint(checkpoint, dtype)))
        return
    out.mkdir(parents=True)
    for entry in model_entries(checkpoint, dtype):
        _write_file(out / entry.name, entry)


def kit(options: argparse.Namespace) -> None:
    """Write the inference kit: one HTML file that writes texts offline."""
    checkpoint, out = open_checkpoint(options.file), options.out
    if out.exists():
        raise DataError(f"{out} is there already.", do="Name another target.")
    try:
        script = (options.site / SCRIPT_FILE).read_bytes()
    except OSError as cause:
        raise DataError(
            f"There is no built site in {options.site}.",
            "The kit's script comes from it.",
            "Build it (python3 build.py site), or name its folder with --site.",
        ) from cause

    async def make() -> list[memoryview]:
        player = await open_oracle(checkpoint)
        config, end = checkpoint.config, checkpoint.separator[0]
        program = build_inference(config, from_binary32=True).program
        prompt = [end, *BytePairs(checkpoint.tokenizer).encode(SAMPLE_PROMPT)]
        parts = KitParts(
            await read_narrow(player, program, config),
            options.bits,
            checkpoint.tokenizer,
            end,
            {"parameters": parameter_count(config), **checkpoint.facts},
            script,
            await make_check(player, config, prompt),
        )
        return make_kit(parts)

    parts = asyncio.run(make())
    with out.open("wb") as file:
        file.writelines(parts)


def _write_file(path: Path, entry: Entry) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.writelines(entry.parts)


# ------------------------------------------------------------------ the parser


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="python3 -m daisychain", description=__doc__)
    out.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = out.add_subparsers(required=True)

    def command(name: str, run: object, summary: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.add_argument("file", type=Path, help="a checkpoint (.zip), or a folder")
        sub.set_defaults(run=run)
        return sub

    command("info", info, "say what a checkpoint is")
    writing = command("generate", generate_text, "let the model go on with a text")
    writing.add_argument("--prompt", default="", help="what to go on with")
    writing.add_argument("--tokens", type=int, default=64, help="at most so many (64)")
    writing.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (0)")
    writing.add_argument("--top-k", type=int, default=0, help="0 means no limit (0)")
    writing.add_argument("--top-p", type=float, default=1.0, help="1 means no limit (1)")
    writing.add_argument("--seed", type=int, default=1, help="of the draws (1)")
    converting = command("convert", convert, "write a checkpoint in another form")
    converting.add_argument("out", type=Path, help="a new .zip, or a new folder")
    converting.add_argument("--dtype", choices=DTYPES, default="float32")
    converting.add_argument("--no-state", action="store_true", help="leave the run out")
    making = command("kit", kit, "write one HTML file that writes texts offline")
    making.add_argument("out", type=Path, help="a new .html file")
    making.add_argument("--bits", type=int, choices=(16, 8), default=16)
    making.add_argument("--site", type=Path, default=Path("dist"), help="the built site (dist)")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Carries the command line out; the exit status."""
    options = parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a model may write what a terminal cannot show
        sys.stdout.reconfigure(errors="replace")
    try:
        options.run(options)
    except DaisyChainError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except OSError as error:
        print(f"{error.filename or 'A file'} cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
