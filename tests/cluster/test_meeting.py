"""Which relays and servers are used, by page and setting."""

from __future__ import annotations

import pytest

from daisychain.cluster.meeting import PUBLIC_RELAYS, PUBLIC_STUN, ice_server, relays_for, stun_for
from daisychain.cluster.transports import parse_relay_address
from daisychain.errors import SettingsError

LOCAL, PUBLIC = "http://localhost:8000/?a=b#room=x", "https://example.org/daisychain/"


def test_a_local_page_uses_no_server_of_the_internet() -> None:
    assert relays_for("", LOCAL) == relays_for("  ", "http://127.0.0.1:80/") == ("/relay",)
    assert stun_for("", LOCAL) == ()


def test_a_public_page_uses_encrypted_defaults_that_can_be_switched_off() -> None:
    assert relays_for("", PUBLIC) == ("/relay", *PUBLIC_RELAYS)
    assert stun_for("", PUBLIC) == PUBLIC_STUN
    for relay in relays_for("", PUBLIC):
        assert parse_relay_address(relay, PUBLIC).url.startswith("wss://")
    assert relays_for("", "file:///x/index.html") == PUBLIC_RELAYS
    assert relays_for("none", PUBLIC) == stun_for(" none ", PUBLIC) == ()


def test_lists() -> None:
    relays = relays_for("/relay, wss://r.example/relay mqtt+wss://u:p@b.example/mqtt", PUBLIC)
    assert relays == ("/relay", "wss://r.example/relay", "mqtt+wss://u:p@b.example/mqtt")
    assert [server.url for server in stun_for("stun:a.example,stun:b.example:3478", LOCAL)] == [
        "stun:a.example",
        "stun:b.example:3478",
    ]
    with pytest.raises(SettingsError):
        relays_for("/relay, ws://r.example/relay", PUBLIC)


@pytest.mark.parametrize(
    "url", ["turn:h:3478?transport=tcp", "turns:h.example:443", "turn:[::1]:3478", "turn:1.2.3.4"]
)
def test_turn_needs_user_and_password(url: str) -> None:
    server = ice_server(f" {url} ", "ann", "secret")
    assert (server.url, server.user, server.credential) == (url, "ann", "secret")
    assert "secret" not in repr(server)
    with pytest.raises(SettingsError, match="needs a user"):
        ice_server(url, "ann")


@pytest.mark.parametrize(
    "url",
    [
        *("", "http://x", "turn:", "turn://x", "TURN:h", "turn:u:p@h", "turn:\u0661"),
        *("stun:a b", "stun:x:99999", "stun:x:0", "stun:x?y=z", "stun:x?transport=udp"),
        *("turn:1.2.3.999", "turn:a..b", "turn:-a", f"turn:{'a.' * 200}b"),
        *("turn:[1::]x", "turn:[1:2]", "turn:[1.2.3.4]"),
    ],
)
def test_bad_servers_are_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(SettingsError, match="is no address"):
        ice_server(url, "u", "c")
