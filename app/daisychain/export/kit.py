"""The inference kit: one HTML file with a model in it that writes texts from a disk, offline.

It holds narrow weights, the plan of generation laid out for the WebAssembly kernels, those kernels,
the tokenizer and a small page.  Nothing in it names an address; its Content-Security-Policy allows
its own script and style by their hashes and no connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from daisychain.errors import DataError
from daisychain.export.checkpoint import Facts
from daisychain.export.json_files import read_object
from daisychain.export.kit_gpu import gpu_parts
from daisychain.model.config import ModelConfig, parameters
from daisychain.model.decode import LOGITS, PROMPT
from daisychain.model.inference import build_inference, narrow_buffer
from daisychain.plan import Program
from daisychain.platform import read_resource
from daisychain.players.player import Player
from daisychain.players.wasm_layout import lay_out

TEMPLATE_FILE = "export/kit.html"
MODULE_FILE = "wasm/kernels.wasm"
SCRIPT_FILE = "js/kit.js"
"""The page's script, bundled by tools/bundle.mjs; the site has it."""

MAX_SCRIPT_BYTES = 1 << 20

FACT_NAMES = {
    "parameters": "Parameters",
    "step": "Steps",
    "tokens": "Tokens trained on",
    "data": "Text",
    "devices": "Devices",
    "loss": "Training loss, nats a token",
    "heldout_bits_per_byte": "Held-out bits a byte",
    "saved": "Made",
    "weights_hash": "Hash of the weights",
}


@dataclass(frozen=True)
class NarrowWeights:
    """A model's weights as the kernels read them, by parameter name, and their exponents."""

    config: ModelConfig
    mantissas: Mapping[str, bytes]
    exponents: Mapping[str, int]


@dataclass(frozen=True)
class Check:
    """Tokens that a device wrote greedily after a prompt."""

    prompt: Sequence[int]
    tokens: Sequence[int]


async def read_narrow(player: Player, program: Program, config: ModelConfig) -> NarrowWeights:
    """The narrow weights that a player holds for a program that has them."""
    calls = (call for plan in program.plans.values() for call in plan)
    made = (call for call in calls if call.kernel == "narrow_weights")
    words = {call.buffers[1]: call.named_params()["out_exp"] for call in made}
    scalars = memoryview(await player.read_scalars()).cast("i")
    names = [p.name for p in parameters(config)]
    mantissas = {name: await player.read(narrow_buffer(name)) for name in names}
    return NarrowWeights(
        config, mantissas, {name: scalars[words[narrow_buffer(name)]] for name in names}
    )


@dataclass(frozen=True)
class KitParts:
    """Everything that goes into a kit.

    ``bits`` is 16, which is exact, or 8, which leaves the low bytes of matrices out; ``check``
    belongs to exact weights only.
    """

    weights: NarrowWeights
    bits: int
    tokenizer: bytes
    separator: int
    facts: Facts
    script: bytes
    check: Check | None = None


def make_kit(parts: KitParts) -> list[memoryview]:
    """The HTML file in parts.  Raises DataError when the script cannot be inlined."""
    config, weights = parts.weights.config, parts.weights
    inference = build_inference(config)
    layout = lay_out(inference.program)
    constants = inference.program.constants
    filled = {name: len(data) for name, data in constants.items()}
    filled |= {narrow_buffer(p.name): 2 * p.count for p in parameters(config)}
    packed = {
        "module": read_resource(MODULE_FILE),
        "image": layout.image,
        "tokenizer": short_tokenizer(parts.tokenizer),
        "gpu": gpu_parts(inference.program, layout, filled),
        **{f"constant {name}": data for name, data in constants.items()},
    }
    contents = [("image", layout.image_address)]
    contents += [(f"constant {name}", layout.buffers[name][0]) for name in constants]
    blocks: list[bytes] = []
    listed = []
    for number, p in enumerate(parameters(config)):
        planes = 1 if parts.bits == 8 and p.is_matrix else 2
        data = weights.mantissas[p.name]
        blocks.append(_block(f"w{number}", high_bytes(data) if planes == 1 else data))
        listed.append((f"w{number}", layout.buffers[narrow_buffer(p.name)][0], planes))
    kit = {
        "context": config.context,
        "vocabulary": config.vocabulary,
        "separator": parts.separator,
        "facts": shown_facts(parts),
        "check": _check(parts),
        "layout": {
            "pages": layout.pages,
            "stackTop": layout.stack_tops[0],
            "context": layout.contexts[0],
            "kernels": layout.kernels,
            "plans": layout.plans,
            "prompt": layout.buffers[PROMPT][0],
            "logits": layout.buffers[LOGITS][0],
            "scalars": layout.scalars,
        },
        "exponents": [
            (inference.exponents[name], exponent & 0xFFFFFFFF)
            for name, exponent in weights.exponents.items()
        ],
        "runtime": [(name, len(data)) for name, data in packed.items()],
        "contents": contents,
        "weights": listed,
    }
    runtime = zlib.compress(b"".join(packed.values()), 9)
    facts = json.dumps(kit, separators=(",", ":")).replace("<", "\\u003c").encode()
    head = b'<script type="application/json" id="kit">' + facts + b"</script>\n"
    return _page(parts, [head, _block("runtime", runtime), *blocks])


def high_bytes(narrow: bytes) -> bytes:
    """Of the interleaved layout, 8 high and 8 low bytes in turn, the high ones."""
    return memoryview(narrow).cast("Q")[::2].tobytes()


def short_tokenizer(tokenizer: bytes) -> bytes:
    """tokenizer.json at a third of its packed size, where its last tokens are what its merges make.

    Then the vocabulary is a list in the order of ids, and of each merge only the length of its left
    part is given, in UTF-16 units.  ``lengthened`` in app/js/kit.js undoes it.
    """
    spec = read_object(tokenizer, "tokenizer.json")
    model = spec.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(vocabulary, dict):
        raise DataError("The tokenizer is of a kind that a kit cannot hold.")
    names = sorted(vocabulary, key=lambda name: int(vocabulary[name]))
    merges = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model.get("merges") or ()]
    made = names[len(names) - len(merges) :]
    is_plain = [vocabulary[name] for name in names] == list(range(len(names)))
    if is_plain and ["".join(pair) for pair in merges] == made:
        model["vocab"] = names
        model["merges"] = [len(left.encode("utf-16-le")) // 2 for left, _ in merges]
    return json.dumps(spec, separators=(",", ":"), ensure_ascii=False).encode()


def kit_bytes(parameters: int, bits: int) -> int:
    """About how large a kit becomes."""
    return 220_000 + parameters * bits // 8 * 4 // 3


def shown_facts(parts: KitParts) -> list[tuple[str, str]]:
    """Names and values for people."""
    rows = []
    for name, label in FACT_NAMES.items():
        if value := parts.facts.get(name):
            rows.append((label, _date(value) if name == "saved" else shown_value(value)))
    exact = "16-bit mantissas: the very text of the trained model"
    short = "8-bit mantissas: close to the trained model, at half the size"
    return [*rows, ("Precision", exact if parts.bits == 16 else short)]


def shown_value(value: str | int | float) -> str:
    """A fact's value for people."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _date(value: str | int | float) -> str:
    """1 December 2026, 14:25 UTC; what is no time stays as it is."""
    try:
        time = datetime.fromisoformat(str(value)).astimezone(UTC)
    except (ValueError, OverflowError):
        return str(value)
    return f"{time.day} {time:%B %Y, %H:%M} UTC"


def _check(parts: KitParts) -> dict[str, Any]:
    """What the page writes first; short weights need not give the tokens of the exact ones."""
    check = parts.check or Check([parts.separator], [])
    tokens = list(check.tokens) if parts.bits == 16 and check.tokens else None
    return {"prompt": list(check.prompt), "tokens": tokens}


def _block(name: str, data: bytes) -> bytes:
    head = f'<script type="text/plain" id="{name}">'.encode()
    return head + base64.b64encode(data) + b"</script>\n"


def _page(parts: KitParts, blocks: Sequence[bytes]) -> list[memoryview]:
    """The template filled in; script and style are allowed by their hashes."""
    template = read_resource(TEMPLATE_FILE).decode()
    script = parts.script.decode("utf-8").strip()
    if "</script" in script or "<!--" in script or "\r" in script:
        raise DataError(
            "The kit's script cannot stand inside of a page.",
            "The site was built by another version of its tools.",
            "Build the site again: python3 build.py site.",
        )
    style = template.partition("<style>")[2].partition("</style>")[0]
    count = sum(p.count for p in parameters(parts.weights.config))
    step = shown_value(parts.facts.get("step", 0))
    filled = {
        "{script hash}": _hash(script),
        "{style hash}": _hash(style),
        "{title}": escape(f"A language model of {count:,} parameters, step {step}"),
        "{script}": script,
    }
    for name, text in filled.items():
        template = template.replace(name, text, 1)
    before, _, after = template.partition("{blocks}\n")
    return [memoryview(part) for part in (before.encode(), *blocks, after.encode())]


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
