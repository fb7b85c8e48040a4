"""Settings: presets, limits, links, and a sentence for everything that is refused."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.errors import SettingsError
from daisychain.settings import (
    LINK_NAMES,
    MAX_PARAMETERS,
    MAX_TOKENS_PER_STEP,
    PRESETS,
    RANGES,
    Settings,
    parse_query,
    parse_value,
    resolve,
    swiglu_width,
    to_query,
)


@pytest.mark.parametrize(
    ("preset", "shape", "hidden", "lr"),
    [
        ("nano", (64, 2, 4, 64, 8), 192, 3e-3),
        ("tiny", (128, 4, 4, 128, 8), 352, 3e-3),
        ("small", (256, 6, 8, 256, 8), 704, 1e-3),
        ("medium", (512, 8, 8, 512, 8), 1376, 6e-4),
    ],
)
def test_presets(preset: str, shape: tuple[int, ...], hidden: int, lr: float) -> None:
    s = resolve({"preset": preset})
    assert (s.width, s.layers, s.heads, s.context, s.batch) == shape
    assert (s.hidden, s.lr, s.kv_heads, s.tied) == (hidden, lr, s.heads, True)
    assert (s.steps, s.seed, s.data, s.player) == (1000, 1, "embedded", "auto")


def test_parameters_counts_every_tensor() -> None:
    s = resolve({"width": 64, "heads": 4, "kv_heads": 2, "layers": 3, "hidden": 96, "tied": False})
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 2 * 64
    assert s.parameters == 2 * 16_512 * 64 + 3 * layer + 64
    assert s.head_dim == 16
    assert s.tokens_per_step == 512


def test_the_link_of_the_issue() -> None:
    s, sentences = parse_query("?start=solo&preset=nano&steps=20&seed=1")
    assert sentences == ()
    assert (s.start, s.preset, s.steps, s.seed) == ("solo", "nano", 20, 1)
    assert s.warmup == 2


def test_every_parameter_of_the_public_interface_is_known() -> None:
    shape = {"preset", "width", "layers", "heads", "context", "batch"}
    run = {
        "start",
        "steps",
        "lr",
        "seed",
        "data",
        "player",
        "eval_every",
        "save_every",
        "sample_every",
        "relay",
    }
    assert shape | run <= set(LINK_NAMES)
    empty = "&".join(f"{name}=" for name in LINK_NAMES)
    assert parse_query(empty) == (resolve(), ())


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("layers=0", "number of layers must be a whole number from 1 to 64, not 0"),
        ("layers=-3", "not -3"),
        ("layers=two", "not 'two'"),
        ("width=100", "width must be a multiple of 8"),
        ("width=72&heads=5", "width 72 is not divisible by 5 heads"),
        ("width=72&heads=6", "12 each"),
        ("heads=4&kv_heads=3", "4 heads are not divisible by 3 key-value heads"),
        ("context=1000000000", "not 1,000,000,000"),
        ("context=4096&batch=1024", "65,536 tokens, but 1,024 sequences of 4,096 are 4,194,304"),
        ("steps=" + "9" * 5000, "too long"),
        ("steps=" + "9" * 500, "number of steps must be"),
        ("width=4096&layers=64", "500,000,000 parameters"),
        ("lr=nan", "learning rate"),
        ("lr=inf", "learning rate"),
        ("lr=-1", "learning rate"),
        ("lr=0", "learning rate must be from 1e-06 to 1, not 0.0"),
        ("lr=1e9", "learning rate"),
        ("preset=huge", "nano, tiny, small or medium, not huge"),
        ("player=cuda", "auto, webgpu or wasm"),
        ("start=now", "solo, room or join"),
        ("data=../../etc/passwd", "owner/name"),
        ("data=a..b/c", "owner/name"),
        ("relay=javascript:alert(1)", "wss://"),
        ("relay=wss://a,,wss://b", "with commas between them"),
        ("relay=" + ",".join(["wss://a"] * 9), "up to 8 wss://"),
        ("stun=turn:relay.example:3478", "STUN server must be none, or up to 8 stun:host:port"),
        ("stun=stun:host:99999", "not stun:host:99999"),
        ("stun=stun:1.2.3.999", "STUN server must be"),
        ("stun=javascript:alert(1)", "STUN server must be"),
        ("stun=stun:a,,stun:b", "with commas between them"),
        ("stun=" + ",".join(["stun:a"] * 9), "up to 8 stun:host:port"),
        ("turn=turn:ann:secret@relay.example", "no setting called turn"),
        ("approve=some", "letting everybody in must be all, not some"),
        ("name=" + "x" * 41, "at most 40 characters"),
        ("name=a%0Ab", "one line"),
        ("hub=http://hub.example", "https:// address"),
        ("hub=https://hub.example/path", "without a path"),
        ("seed=4294967296", "seed must be a whole number from 0 to 4,294,967,295"),
        ("steps=10&warmup=11", "longer than the run"),
        ("tied=yes", "0 or 1"),
        ("widht=64", "no setting called widht"),
        ("&".join(f"x{i}=1" for i in range(100)), "too many parameters"),
        ("data=" + "x" * 300, "x" * 40 + "..."),
    ],
)
def test_absurd_values_get_one_sentence_and_the_defaults(query: str, words: str) -> None:
    settings, sentences = parse_query(query)
    assert settings == resolve()
    assert len(sentences) == 1
    assert words in sentences[0]
    assert sentences[0].endswith(".")
    assert len(sentences[0]) < 250


def test_a_refused_value_leaves_the_others_alone() -> None:
    settings, sentences = parse_query("preset=tiny&layers=0&steps=7&seed=x")
    assert (settings.layers, settings.steps, settings.seed) == (4, 7, 1)
    assert len(sentences) == 2


def test_a_setting_given_twice_is_told_and_the_last_one_counts() -> None:
    settings, sentences = parse_query("seed=x&seed=3&lr=1e-3&seed=4&foo=1&foo=2")
    assert (settings.seed, settings.lr) == (4, 1e-3)
    assert sentences == (
        "The seed is given 3 times; the last one counts.",
        "There is no setting called foo; it is ignored.",
    )


def test_what_cannot_be_seen_is_written_out() -> None:
    _, sentences = parse_query("name=a%0Ab%E2%80%AEc&%00=1")
    assert "not a\\nb\\u202ec" in sentences[0]
    assert "no setting called \\x00" in sentences[1]


def test_sources_and_relays_that_are_fine() -> None:
    assert parse_value("data", "HuggingFaceFW/fineweb-edu") == "HuggingFaceFW/fineweb-edu"
    for relay in (
        "wss://relay.example/x",
        "mqtt+wss://broker.example:8084/mqtt",
        "ws://[::1]:8000",
        "none",
        "/relay,wss://relay.example",
    ):
        assert parse_value("relay", relay) == relay
    for stun in ("stun:[::1]:3478", "none", "stun:stun.example,stuns:other.example:5349"):
        assert parse_value("stun", stun) == stun
    for hub in ("https://hub.example", "https://hub.example:8443", "http://127.0.0.1:8000"):
        assert parse_value("hub", hub) == hub


def test_names_and_approval_of_a_room() -> None:
    settings, sentences = parse_query("start=join&name=Zo%C3%AB's+phone&approve=all")
    assert sentences == ()
    assert (settings.name, settings.approve, settings.start) == ("Zo\u00eb's phone", "all", "join")


def test_settings_cannot_exist_in_a_wrong_state() -> None:
    with pytest.raises(SettingsError, match="not divisible"):
        resolve({"heads": 5})
    with pytest.raises(SettingsError, match="no setting called colour"):
        resolve({"colour": 1})
    with pytest.raises(SettingsError, match="layers"):
        Settings(**{**vars(resolve()), "layers": 0})


def numbers(name: str) -> st.SearchStrategy[int]:
    limits = RANGES[name]
    least, most = -(-limits.least // limits.multiple), limits.most // limits.multiple
    return st.integers(least, most).map(lambda n: n * limits.multiple)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{name: numbers(name) for name in RANGES},
            "preset": st.sampled_from(list(PRESETS)),
            "lr": st.floats(1e-6, 1.0),
            "tied": st.booleans(),
            "data": st.sampled_from(["embedded", "fineweb-edu", "a/b"]),
        },
    )
)
def test_a_link_reproduces_the_settings(values: dict[str, object]) -> None:
    try:
        settings = resolve(values)
    except SettingsError:
        return
    assert parse_query(to_query(settings)) == (settings, ())


@given(st.dictionaries(st.sampled_from(LINK_NAMES), st.integers(-5, 5000).map(str), max_size=8))
def test_any_numbers_end_in_valid_settings(values: dict[str, str]) -> None:
    settings, _ = parse_query("&".join(f"{name}={text}" for name, text in values.items()))
    assert settings.width % settings.heads == 0
    assert settings.heads % settings.kv_heads == 0
    assert settings.head_dim % 8 == 0
    assert settings.tokens_per_step <= MAX_TOKENS_PER_STEP
    assert settings.parameters <= MAX_PARAMETERS


@given(st.text(max_size=200))
def test_any_text_is_answered(text: str) -> None:
    settings, sentences = parse_query(text)
    assert isinstance(settings, Settings)
    assert all(len(sentence) < 250 for sentence in sentences)
    for name in LINK_NAMES:
        with suppress(SettingsError):
            parse_value(name, text)


@given(st.integers(8, 4096))
def test_swiglu_width_is_near_eight_thirds(width: int) -> None:
    assert swiglu_width(width) % 32 == 0
    assert 0 <= swiglu_width(width) - 8 * width // 3 < 32


def test_the_shortest_link() -> None:
    assert to_query(resolve()) == ""
    assert to_query(resolve({"start": "solo", "steps": 20})) == "start=solo&steps=20"
    assert to_query(resolve({"tied": False, "data": "a/b"})) == "tied=0&data=a/b"


def test_the_documented_parameters_are_the_real_ones() -> None:
    text = (Path(__file__).parents[1] / "docs/INTERFACE.md").read_text()
    links = text.partition("## Scripts")[0]
    assert re.findall(r"^\| `(\w+)` \|", links, re.MULTILINE) == list(LINK_NAMES)
    for preset in PRESETS:
        s = resolve({"preset": preset})
        shape = (s.width, s.layers, s.heads, f"{s.hidden:,}", s.context, s.batch)
        assert f"| {preset} | {' | '.join(map(str, shape))} |" in links
