"""The TURN relay of this device's links: entered once, kept in this browser and nowhere else.

User name and password are secrets of the person who entered them.  They go from the form into the
browser's storage and from there into its connections; no link, state, log, checkpoint or error
has them.  So no sentence repeats what was entered either: a password may stand in a wrong field.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from daisychain.cluster.ice_address import TURN, is_ice_address
from daisychain.cluster.meeting import ice_server, stun_for
from daisychain.errors import SettingsError
from daisychain.platform import storage_get, storage_remove, storage_set
from daisychain.platform.rtc import IceSettings

TURN_KEY = "turn"
"""Storage key of the relay."""

MAX_CREDENTIAL_BYTES = 256
"""Of a user name or a password in UTF-8; browsers take no user name above 509."""
MAX_KEPT_CHARACTERS = 8_192


@dataclass(frozen=True)
class TurnRelay:
    """A relay as ``turn_relay`` has checked it.

    ``only``: links take no other way, so that other devices do not learn this one's address.
    """

    address: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    only: bool = False


def turn_relay(address: str, user: str, password: str, only: bool = False) -> TurnRelay:
    """The relay that a person entered; raises SettingsError with a sentence."""
    check_address(address)
    check_user(user)
    check_password(password)
    return TurnRelay(address.strip(), user.strip(), password, only)


def check_address(text: str) -> None:
    """Raises SettingsError for an address that no browser takes."""
    if not is_ice_address(text.strip(), TURN):
        raise SettingsError(
            "The address of the TURN relay must be turn:host:port or turns:host:port."
        )


def check_user(text: str) -> None:
    """Raises SettingsError for an empty or absurd user name."""
    _check_credential("user name", text)


def check_password(text: str) -> None:
    """Raises SettingsError for an empty or absurd password."""
    _check_credential("password", text)


def keep_relay(relay: TurnRelay | None) -> bool:
    """Keeps the relay in this browser, or forgets it; False where the browser keeps nothing."""
    if relay is None:
        storage_remove(TURN_KEY)
        return True
    return storage_set(TURN_KEY, json.dumps(vars(relay)))


def kept_relay() -> TurnRelay | None:
    """The relay that this browser keeps, or None.

    Raises SettingsError for one that cannot be read: it may have been the only way allowed, so
    links must not quietly take another one.
    """
    text = storage_get(TURN_KEY)
    if text is None:
        return None
    try:
        if len(text) > MAX_KEPT_CHARACTERS:
            raise ValueError("too long")
        return _relay_of(json.loads(text))
    except (ValueError, RecursionError, SettingsError) as cause:
        raise SettingsError(
            "The TURN relay that this browser keeps cannot be read.",
            do="Enter it again under All settings, or forget it there.",
        ) from cause


def ice_settings(stun: str, page: str, relay: TurnRelay | None) -> IceSettings:
    """How this page's links find their way; raises SettingsError for a bad ``stun``."""
    servers = stun_for(stun, page)
    if relay is None:
        return IceSettings(servers)
    turn = ice_server(relay.address, relay.user, relay.password)
    return IceSettings((*servers, turn), relay_only=relay.only)


def _check_credential(label: str, text: str) -> None:
    if not text.strip():
        raise SettingsError(f"The TURN relay needs a {label}.")
    if not text.isprintable() or len(text.encode()) > MAX_CREDENTIAL_BYTES:
        raise SettingsError(
            f"The {label} of the TURN relay must be one line of at most "
            f"{MAX_CREDENTIAL_BYTES} bytes."
        )


def _relay_of(kept: object) -> TurnRelay:
    match kept:
        case {
            "address": str(address),
            "user": str(user),
            "password": str(password),
            "only": bool(only),
        }:
            return turn_relay(address, user, password, only)
        case _:
            raise ValueError("not a relay")
