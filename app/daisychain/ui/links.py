"""The page's addresses: where it stands, the link that repeats a run, the link into a room."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from daisychain import platform
from daisychain.cluster.room_code import (
    FRAGMENT_KEY,
    format_room_code,
    parse_room_code,
    room_in_fragment,
    room_link,
)
from daisychain.cluster.transports import is_loopback
from daisychain.errors import DaisyChainError
from daisychain.settings import Settings, to_query


def show_settings(settings: Settings) -> None:
    """Writes the settings into the page's address; nothing begins by itself at a reload."""
    parts = urlsplit(platform.page_url())
    query = to_query(replace(settings, start=""))
    platform.replace_page_url(urlunsplit(parts._replace(query=query)))


def show_place(settings: Settings, start: str, code: str = "") -> None:
    """Writes down where a reload shall begin; the code goes into the fragment, which stays here."""
    query = to_query(replace(settings, start=start))
    fragment = f"{FRAGMENT_KEY}={format_room_code(code)}" if code else ""
    parts = urlsplit(platform.page_url())
    platform.replace_page_url(urlunsplit(parts._replace(query=query, fragment=fragment)))


def run_link(settings: Settings) -> str:
    """The link that begins this run alone, at once."""
    query = to_query(replace(settings, start="solo", approve="", name=""))
    parts = urlsplit(platform.page_url())
    return urlunsplit(parts._replace(query=query, fragment=""))


def invitation(settings: Settings, code: str) -> str:
    """The link into a room: its run and its relays, but nothing of this device's own."""
    shared = replace(settings, start="join", player="auto", approve="", name="")
    return room_link(platform.page_url(), code, to_query(shared))


def code_in_page() -> str:
    """What the page's fragment says the room's code is, unchecked; empty if it says nothing."""
    return room_in_fragment(urlsplit(platform.page_url()).fragment) or ""


def room_in_page() -> str:
    """The canonical code in the page's fragment; empty if there is none, or none that can be."""
    try:
        return parse_room_code(code_in_page())
    except DaisyChainError:
        return ""


def is_private() -> bool:
    """Whether this page's address means another machine on every other device."""
    return is_loopback(urlsplit(platform.page_url()).hostname)
