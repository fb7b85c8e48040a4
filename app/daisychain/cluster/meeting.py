"""Where devices meet and which servers help them: defaults, and the settings that change them.

A page served by this very machine meets at its own ``/relay`` and needs no server of the internet.
A page on a public static host has no server of its own: it also uses public MQTT brokers, which see
nothing but sealed messages, and public STUN servers, which see nothing but an address.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from daisychain.cluster.ice_address import is_ice_address
from daisychain.cluster.transports import is_loopback, parse_relay_address
from daisychain.errors import SettingsError
from daisychain.platform.rtc import IceServer

OWN_RELAY = "/relay"
PUBLIC_RELAYS = (
    "mqtt+wss://broker.emqx.io:8084/mqtt",
    "mqtt+wss://broker.hivemq.com:8884/mqtt",
    "mqtt+wss://test.mosquitto.org:8081/mqtt",
)
PUBLIC_STUN = (
    IceServer("stun:stun.cloudflare.com:3478"),
    IceServer("stun:stun.l.google.com:19302"),
)
NO_SERVERS = "none"
MAX_SERVERS = 8


def relays_for(setting: str, page: str) -> tuple[str, ...]:
    """Relay addresses for the setting ``relay``: empty for the defaults, ``none``, or a list.

    Items are separated by commas or spaces.  Raises SettingsError for a bad one.
    """
    if setting.strip() == NO_SERVERS:
        return ()
    chosen = tuple(part for part in re.split(r"[\s,]+", setting) if part)[:MAX_SERVERS]
    if not chosen:
        own = (OWN_RELAY,) if page.startswith("http") else ()
        chosen = own if is_loopback(urlsplit(page).hostname) else (*own, *PUBLIC_RELAYS)
    for relay in chosen:
        parse_relay_address(relay, page)
    return chosen


def stun_for(setting: str, page: str) -> tuple[IceServer, ...]:
    """STUN servers for the setting ``stun``: empty for the defaults, ``none``, or a list.

    Without one, devices of one network alone meet.  Raises SettingsError for a bad address.
    """
    if setting.strip() == NO_SERVERS:
        return ()
    chosen = [part for part in re.split(r"[\s,]+", setting) if part][:MAX_SERVERS]
    if not chosen:
        return () if is_loopback(urlsplit(page).hostname) else PUBLIC_STUN
    return tuple(ice_server(url) for url in chosen)


def ice_server(url: str, user: str = "", credential: str = "") -> IceServer:
    """A checked STUN or TURN server; raises SettingsError with a sentence."""
    url = url.strip()
    if not is_ice_address(url):
        raise SettingsError(
            f"{url[:60]!r} is no address of a STUN or TURN server.",
            do="Use stun:host:port, turn:host:port or turns:host:port.",
        )
    if url.startswith("turn") and not (user and credential):
        raise SettingsError("A TURN server needs a user and a password.")
    return IceServer(url, user, credential)
