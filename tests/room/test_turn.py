"""The TURN relay: what is refused, where it is kept, and where it never appears."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.cluster.mesh import Mesh
from daisychain.cluster.mesh_events import MeshSettings
from daisychain.errors import SettingsError
from daisychain.export.checkpoint import RUN_SETTINGS
from daisychain.platform import cpython
from daisychain.platform.rtc import IceServer, IceSettings
from daisychain.room.people import mesh_settings
from daisychain.room.run_maker import settings_text
from daisychain.room.session import RoomSession
from daisychain.room.turn import (
    MAX_CREDENTIAL_BYTES,
    TURN_KEY,
    TurnRelay,
    ice_settings,
    keep_relay,
    kept_relay,
    turn_relay,
)
from daisychain.settings import LINK_NAMES, parse_query, resolve, to_query
from daisychain.ui import links

LOCAL = "http://localhost:8000/"
ADDRESS, USER, PASSWORD = "turn:relay.example:3478", "ann-of-the-relay", "hunter2-of-ann"
RELAY = TurnRelay(ADDRESS, USER, PASSWORD)


@pytest.fixture(autouse=True)
def own_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpython, "_storage", {})
    cpython.replace_page_url(LOCAL)


@pytest.mark.parametrize(
    ("entered", "words"),
    [
        (("", "u", "p"), "address of the TURN relay must be turn:host:port"),
        (("stun:h:3478", "u", "p"), "address of the TURN relay"),
        (("https://h", "u", "p"), "address of the TURN relay"),
        (("turn:u:hunter2@h", "u", "p"), "address of the TURN relay"),
        (("turn:h:70000", "u", "p"), "address of the TURN relay"),
        (("turn:" + "h" * 10**6, "u", "p"), "address of the TURN relay"),
        (("turn:h", " ", "p"), "needs a user name"),
        (("turn:h", "u", ""), "needs a password"),
        (("turn:h", "u\nv", "p"), "user name of the TURN relay must be one line"),
        (("turn:h", "u", "hunter2\x00"), "password of the TURN relay must be one line"),
        (("turn:h", "u", "\ud800hunter2"), "password of the TURN relay must be one line"),
        (("turn:h", "\u00e9" * 129, "p"), "at most 256 bytes"),
        (("turn:h", "u", "hunter2" * 100), "at most 256 bytes"),
    ],
)
def test_absurd_values_get_one_sentence_that_repeats_none_of_them(
    entered: tuple[str, str, str], words: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        turn_relay(*entered)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value)) < 120


def test_what_is_kept_comes_back_and_is_forgotten() -> None:
    assert kept_relay() is None
    relay = turn_relay(f" {ADDRESS} ", f" {USER}", f" {PASSWORD} ", only=True)
    assert (relay.address, relay.user, relay.password) == (ADDRESS, USER, f" {PASSWORD} ")
    assert keep_relay(relay)
    assert kept_relay() == relay
    longest = TurnRelay(f"turn:{'a' * 63}", "\u00e9" * 128, "\U0001f600" * 64)
    assert len(longest.user.encode()) == len(longest.password.encode()) == MAX_CREDENTIAL_BYTES
    keep_relay(turn_relay(longest.address, longest.user, longest.password))
    assert kept_relay() == longest
    keep_relay(None)
    assert kept_relay() is None
    assert cpython._storage == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 8_000,
        "null",
        "[1]",
        "{}",
        json.dumps({**vars(RELAY), "only": 1}),
        json.dumps({**vars(RELAY), "address": "turn:"}),
        json.dumps({**vars(RELAY), "password": 5}),
        json.dumps({**vars(RELAY), "more": "x" * 10_000}),
    ],
)
def test_kept_text_that_cannot_be_read_opens_no_room(text: str) -> None:
    """It may have been the one way that was allowed."""
    cpython.storage_set(TURN_KEY, text)
    with pytest.raises(SettingsError, match="cannot be read") as caught:
        mesh_settings(resolve(), approve_all=False)
    assert PASSWORD not in str(caught.value)


@given(st.text(max_size=60))
def test_any_kept_text_is_answered(text: str) -> None:
    cpython.storage_set(TURN_KEY, text)
    with pytest.raises(SettingsError):
        kept_relay()


def test_a_rooms_links_use_what_is_set() -> None:
    settings, _ = parse_query("stun=stun:stun.example:3478")
    stun = IceServer("stun:stun.example:3478")
    assert ice_of(mesh_settings(settings, False)) == IceSettings((stun,))
    assert ice_of(mesh_settings(resolve(), False)) == IceSettings()
    keep_relay(RELAY)
    turn = IceServer(ADDRESS, USER, PASSWORD)
    assert ice_of(mesh_settings(settings, False)) == IceSettings((stun, turn))
    keep_relay(TurnRelay(ADDRESS, USER, PASSWORD, only=True))
    assert ice_of(mesh_settings(resolve(), False)) == IceSettings((turn,), relay_only=True)
    assert ice_settings("none", "https://example.org/", None) == IceSettings()
    assert len(ice_settings("", "https://example.org/", RELAY).servers) == 3


def ice_of(settings: MeshSettings) -> IceSettings:
    return settings.links.connection.ice


def test_the_secrets_appear_nowhere_else() -> None:
    keep_relay(RELAY)
    taken: list[MeshSettings] = []

    def open_mesh(_tell: Callable[[Any], None], settings: MeshSettings) -> Mesh:
        taken.append(settings)
        return cast(Mesh, QuietMesh())

    settings, _ = parse_query("preset=nano&stun=stun:stun.example")
    nothing: Any = None
    session = RoomSession(
        settings,
        nothing,
        nothing,
        role="host",
        code="K7QDM2XP9RTW4HBN",
        name="Ann",
        open_machine=nothing,
        open_mesh=open_mesh,
    )
    assert ice_of(taken[0]).servers[1].credential == PASSWORD
    links.show_place(settings, "room", "K7QDM2XP9RTW4HBN")
    told = [
        json.dumps(session.state()),
        json.dumps(session.log()),
        settings_text(settings, 16_512),
        to_query(settings),
        links.run_link(settings),
        links.invitation(settings, "K7QDM2XP9RTW4HBN"),
        cpython.page_url(),
        repr((taken, RELAY, vars(session))),
    ]
    assert [text for text in told if PASSWORD in text or USER in text] == []
    assert not {name for name in (*LINK_NAMES, *RUN_SETTINGS) if "turn" in name}
    assert "stun" not in RUN_SETTINGS
    assert "stun" not in settings_text(settings, 16_512)
    assert "stun=stun:stun.example" in links.invitation(settings, "K7QDM2XP9RTW4HBN")


class QuietMesh:
    """As much of a mesh as a session's state asks for."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args: []
