"""Settings of a run: presets, limits, and their form in a link.

Every setting is a parameter of the page's address, so that a plain link reproduces a run.  A value
that is unknown or absurd is answered with one sentence and its default is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, urlencode

from daisychain.cluster.ice_address import STUN, is_ice_address
from daisychain.data.spec import EMBEDDED, FINEWEB_EDU, OWN_FILE, is_dataset, is_repository
from daisychain.errors import SettingsError

VOCABULARY = 16_512
"""Tokens of the project's own tokenizer, special tokens included; a multiple of 8."""

MAX_TOKENS_PER_STEP = 65_536
"""A gradient of a matrix sums over all tokens of a step, exact in 32 bits up to this many."""

MAX_PARAMETERS = 500_000_000
"""Weights, moments and gradients take about 20 bytes a parameter: more fits no browser tab."""

MAX_QUERY_CHARACTERS = 4_096
MAX_QUERY_FIELDS = 64
SHOWN_CHARACTERS = 40
"""How much of a refused value a sentence repeats."""

PRESETS: dict[str, dict[str, int | float]] = {
    "nano": {"width": 64, "layers": 2, "heads": 4, "context": 64, "batch": 8, "lr": 3e-3},
    "tiny": {"width": 128, "layers": 4, "heads": 4, "context": 128, "batch": 8, "lr": 3e-3},
    "small": {"width": 256, "layers": 6, "heads": 8, "context": 256, "batch": 8, "lr": 1e-3},
    "medium": {"width": 512, "layers": 8, "heads": 8, "context": 512, "batch": 8, "lr": 6e-4},
}

STARTS = ("", "solo", "room", "join")
PLAYERS = ("auto", "webgpu", "wasm")
EXCHANGES = ("int8", "int4", "int16")
"""How gradients travel in a room, see ``cluster.exchange``."""
NAMED_SOURCES = (EMBEDDED, FINEWEB_EDU, OWN_FILE)
MAX_RELAYS = MAX_STUN_SERVERS = 8
MAX_NAME_CHARACTERS = 40


@dataclass(frozen=True)
class Range:
    """Whole numbers from ``least`` to ``most`` that ``multiple`` divides."""

    least: int
    most: int
    multiple: int = 1

    def __contains__(self, value: int) -> bool:
        return self.least <= value <= self.most and value % self.multiple == 0

    def __str__(self) -> str:
        kind = "a whole number" if self.multiple == 1 else f"a multiple of {self.multiple}"
        return f"{kind} from {self.least:,} to {self.most:,}"


RANGES = {
    "width": Range(8, 4_096, 8),
    "layers": Range(1, 64),
    "heads": Range(1, 64),
    "kv_heads": Range(1, 64),
    "hidden": Range(8, 16_384, 8),
    "context": Range(8, 4_096, 8),
    "batch": Range(1, 1_024),
    "steps": Range(1, 1_000_000),
    "warmup": Range(0, 1_000_000),
    "seed": Range(0, 2**32 - 1),
    "eval_every": Range(0, 1_000_000),
    "save_every": Range(0, 1_000_000),
    "sample_every": Range(0, 1_000_000),
}
"""Limits of the whole-numbered settings; 0 in an ``..._every`` means never."""

LEAST_LR, MOST_LR = 1e-6, 1.0

LABELS = {
    "kv_heads": "number of key-value heads",
    "hidden": "width of the feed-forward layers",
    "layers": "number of layers",
    "heads": "number of heads",
    "lr": "learning rate",
    "steps": "number of steps",
    "batch": "number of sequences a step",
    "context": "context length",
    "warmup": "number of warm-up steps",
    "eval_every": "number of steps between held-out measurements",
    "save_every": "number of steps between saves",
    "sample_every": "number of steps between samples",
    "data": "data source",
    "exchange": "exchange of gradients",
    "relay": "relay",
    "stun": "STUN server",
    "approve": "switch for letting everybody in",
    "name": "name of this device",
    "hub": "address of the Hub",
    "start": "way to start",
    "tied": "switch for tied embeddings",
}
"""What a setting is called in a sentence, where its own name does not say it."""


def swiglu_width(width: int) -> int:
    """The multiple of 32 at or above 8/3 of the model's width."""
    return (8 * width // 3 + 31) // 32 * 32


@dataclass(frozen=True)
class Settings:
    """Everything that determines a run.  Make one with ``resolve`` or ``parse_query``.

    Raises SettingsError when a value is outside its limits or does not fit another one.
    """

    preset: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    tied: bool
    context: int
    batch: int
    lr: float
    steps: int
    warmup: int
    seed: int
    data: str
    tokenizer: str
    player: str
    eval_every: int
    save_every: int
    sample_every: int
    exchange: str
    relay: str
    stun: str
    approve: str
    name: str
    hub: str
    start: str

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for problem in _problems(values):
            raise SettingsError(f"{problem.sentence}.")

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.context

    @property
    def parameters(self) -> int:
        """Number of weights, norms included."""
        return _parameters(vars(self))


@dataclass(frozen=True)
class _Problem:
    """What is wrong, as a sentence without its full stop, and the settings that take part."""

    names: tuple[str, ...]
    sentence: str


def _parameters(values: Mapping[str, Any]) -> int:
    width, kv_width = values["width"], values["width"] // values["heads"] * values["kv_heads"]
    layer = 2 * width * (width + kv_width) + 3 * width * values["hidden"] + 2 * width
    embeddings = VOCABULARY * width * (1 if values["tied"] else 2)
    return int(embeddings + values["layers"] * layer + width)


def _problems(values: Mapping[str, Any]) -> Iterator[_Problem]:
    """Everything wrong with a full set of values: each alone first, then how they fit."""
    alone = [_Problem((n,), text) for n, v in values.items() if (text := _refusal(n, v))]
    yield from alone or _misfits(values)


def _refusal(name: str, value: Any) -> str:
    """Why the value is refused whatever the others are, or an empty string."""
    if name in RANGES:
        fits, wanted = value in RANGES[name], str(RANGES[name])
    elif name == "lr":
        fits, wanted = LEAST_LR <= value <= MOST_LR, f"from {LEAST_LR} to {MOST_LR:g}"
    else:
        fits, wanted = _WORDS[name](value)
    label = LABELS.get(name, name)
    return "" if fits else f"The {label} must be {wanted}, not {_shown(value)}"


def _misfits(values: Mapping[str, Any]) -> Iterator[_Problem]:
    width, heads, kv_heads = values["width"], values["heads"], values["kv_heads"]
    tokens = values["batch"] * values["context"]
    if width % heads:
        yield _Problem(("width", "heads"), f"The width {width} is not divisible by {heads} heads")
    elif width // heads % 8:
        yield _Problem(
            ("width", "heads"),
            f"A head must be a multiple of 8 wide, but width {width} in {heads} heads is "
            f"{width // heads} each",
        )
    if heads % kv_heads:
        yield _Problem(
            ("heads", "kv_heads"),
            f"The {heads} heads are not divisible by {kv_heads} key-value heads",
        )
    if tokens > MAX_TOKENS_PER_STEP:
        yield _Problem(
            ("batch", "context"),
            f"A step may hold {MAX_TOKENS_PER_STEP:,} tokens, but {values['batch']:,} sequences of "
            f"{values['context']:,} are {tokens:,}",
        )
    if values["warmup"] > values["steps"]:
        yield _Problem(
            ("warmup", "steps"),
            f"The warm-up of {values['warmup']:,} steps is longer than the run of "
            f"{values['steps']:,}",
        )
    if _parameters(values) > MAX_PARAMETERS:
        yield _Problem(
            ("width", "layers", "hidden", "tied", "kv_heads"),
            f"A model may have {MAX_PARAMETERS:,} parameters, but this one has "
            f"{_parameters(values):,}",
        )


def _one_of(*choices: str) -> Callable[[Any], tuple[bool, str]]:
    named = [choice for choice in choices if choice]
    wanted = f"{', '.join(named[:-1])} or {named[-1]}"
    return lambda value: (value in choices, wanted)


def _is_source(value: Any) -> tuple[bool, str]:
    wanted = f"{', '.join(NAMED_SOURCES)} or a dataset as owner/name[/config[/split]][:column]"
    return value in NAMED_SOURCES or is_dataset(value), wanted


def _is_tokenizer(value: Any) -> tuple[bool, str]:
    return value == "" or is_repository(value), "empty or a model repository of the Hub, owner/name"


_RELAY = re.compile(r"(wss?|mqtt\+wss?)://[\w.:\[\]-]{1,200}(/[\w./~-]{0,200})?|/[\w./~-]{1,200}")
_HUB = re.compile(
    r"https://[\w.-]{1,200}(:\d{1,5})?|http://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?"
)


def _is_relay(value: Any) -> tuple[bool, str]:
    relays = value.split(",")
    fits = len(relays) <= MAX_RELAYS and all(_RELAY.fullmatch(relay) for relay in relays)
    wanted = f"none, or up to {MAX_RELAYS} wss:// or mqtt+wss:// addresses with commas between them"
    return value in ("", "none") or fits, wanted


def _is_stun(value: Any) -> tuple[bool, str]:
    servers = value.split(",")
    fits = len(servers) <= MAX_STUN_SERVERS and all(is_ice_address(s, STUN) for s in servers)
    wanted = f"none, or up to {MAX_STUN_SERVERS} stun:host:port with commas between them"
    return value in ("", "none") or fits, wanted


def _is_name(value: Any) -> tuple[bool, str]:
    fits = value.isprintable() and value.strip() == value and len(value) <= MAX_NAME_CHARACTERS
    return fits, f"one line of at most {MAX_NAME_CHARACTERS} characters"


def _is_hub(value: Any) -> tuple[bool, str]:
    return value == "" or _HUB.fullmatch(value) is not None, "an https:// address without a path"


_WORDS: dict[str, Callable[[Any], tuple[bool, str]]] = {
    "preset": _one_of(*PRESETS),
    "tied": lambda value: (isinstance(value, bool), "0 or 1"),
    "data": _is_source,
    "tokenizer": _is_tokenizer,
    "player": _one_of(*PLAYERS),
    "exchange": _one_of(*EXCHANGES),
    "relay": _is_relay,
    "stun": _is_stun,
    "approve": lambda value: (value in ("", "all"), "all"),
    "name": _is_name,
    "hub": _is_hub,
    "start": _one_of(*STARTS),
}


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        text = f"{value:,}" if abs(value) < 10**15 else f"{value:.3e}"
    else:
        text = str(value)
        text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """All values: what is given, else the preset's, else what follows from the others."""
    values: dict[str, Any] = {
        "preset": "nano",
        "tied": True,
        "steps": 1_000,
        "seed": 1,
        "data": "embedded",
        "tokenizer": "",
        "player": "auto",
        "eval_every": 50,
        "save_every": 100,
        "sample_every": 100,
        "exchange": "int8",
        "relay": "",
        "stun": "",
        "approve": "",
        "name": "",
        "hub": "",
        "start": "",
    }
    values |= PRESETS[given.get("preset", "nano")] | dict(given)
    values.setdefault("kv_heads", values["heads"])
    values.setdefault("hidden", swiglu_width(values["width"]))
    values.setdefault("warmup", min(100, values["steps"] // 10))
    return values


def resolve(given: Mapping[str, Any] | None = None) -> Settings:
    """Settings from some values; all others take their defaults.

    Raises SettingsError naming the first value that is refused or does not fit the others.
    """
    given = given or {}
    for name, value in given.items():
        if name not in LINK_NAMES:
            raise SettingsError(f"There is no setting called {_shown(name)}.")
        if refusal := _refusal(name, value):
            raise SettingsError(f"{refusal}.")
    return Settings(**_completed(given))


def parse_value(name: str, text: str) -> Any:
    """One value from its text in a link or a form.  Raises SettingsError."""
    text = text.strip()
    value: Any = text
    if name in RANGES and re.fullmatch(r"-?[0-9]{1,30}", text):
        value = int(text)
    elif name == "lr" and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,20}(e-?[0-9]{1,2})?", text.lower()):
        value = float(text)
    elif name == "tied" and text in ("0", "1"):
        value = text == "1"
    elif name in RANGES or name in ("lr", "tied"):
        wanted = {"lr": f"a number from {LEAST_LR} to {MOST_LR:g}", "tied": "0 or 1"}
        label = LABELS.get(name, name)
        expected = wanted.get(name) or str(RANGES[name])
        raise SettingsError(f"The {label} must be {expected}, not {_shown(text)!r}.")
    if refusal := _refusal(name, value):
        raise SettingsError(f"{refusal}.")
    return value


def parse_query(query: str) -> tuple[Settings, tuple[str, ...]]:
    """Settings from a link's query, and one sentence for each value that was refused.

    An empty value means the default.  Never raises: what is refused keeps its default.
    """
    if len(query) > MAX_QUERY_CHARACTERS:
        return resolve(), ("The link is too long to be one of ours; the defaults are kept.",)
    try:
        pairs = parse_qsl(query.removeprefix("?"), max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        return resolve(), ("The link has too many parameters; the defaults are kept.",)
    given: dict[str, Any] = {}
    times = Counter(name for name, _ in pairs)
    sentences = [
        f"The {LABELS.get(name, name)} is given {count} times; the last one counts."
        for name, count in times.items()
        if count > 1 and name in LINK_NAMES
    ]
    for name, text in dict(pairs).items():
        if name not in LINK_NAMES:
            sentences.append(f"There is no setting called {_shown(name)}; it is ignored.")
            continue
        try:
            given[name] = parse_value(name, text)
        except SettingsError as error:
            sentences.append(f"{error.what.removesuffix('.')}; the default is kept.")
    while problem := next(_problems(_completed(given)), None):
        given = {name: value for name, value in given.items() if name not in problem.names}
        sentences.append(f"{problem.sentence}; the defaults are kept.")
    return Settings(**_completed(given)), tuple(sentences)


def to_query(settings: Settings) -> str:
    """The shortest query that ``parse_query`` turns into these settings, without the ``?``."""
    given: dict[str, Any] = {}
    for name in LINK_NAMES:
        value = getattr(settings, name)
        if value != _completed(given)[name]:
            given[name] = value
    return urlencode({n: int(v) if isinstance(v, bool) else v for n, v in given.items()}, safe="/:")


LINK_NAMES = (
    "start",
    "preset",
    "width",
    "layers",
    "heads",
    "kv_heads",
    "hidden",
    "tied",
    "context",
    "batch",
    "steps",
    "warmup",
    "lr",
    "seed",
    "data",
    "tokenizer",
    "player",
    "eval_every",
    "save_every",
    "sample_every",
    "exchange",
    "relay",
    "stun",
    "approve",
    "name",
    "hub",
)
"""The parameters of a link, in the order in which they are written; later ones may follow from
earlier ones (``kv_heads`` from ``heads``), never the other way round."""
