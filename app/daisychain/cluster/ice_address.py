"""Addresses of STUN and TURN servers: those that every browser takes.  Pure.

An RTCPeerConnection throws at an address that it does not understand, and with it no link comes
about at all, so what is not plainly right is refused here.
"""

from __future__ import annotations

import ipaddress
import re

STUN = ("stun", "stuns")
TURN = ("turn", "turns")
MAX_CHARACTERS = 300

_ADDRESS = re.compile(
    r"(?P<kind>stuns?|turns?):(?:\[(?P<six>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9.-]{1,253}))"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<transport>\?transport=(?:udp|tcp))?"
)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def is_ice_address(text: str, kinds: tuple[str, ...] = STUN + TURN) -> bool:
    """Whether this is ``kind:host``, with a port if need be, of one of these kinds."""
    found = _ADDRESS.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if found is None or found["kind"] not in kinds:
        return False
    if found["transport"] and found["kind"] in STUN:
        return False
    if found["port"] and not 1 <= int(found["port"]) <= 65_535:
        return False
    return _is_ip(found["six"], 6) if found["six"] else _is_host(found["host"])


def _is_host(host: str) -> bool:
    labels = host.split(".")
    if labels[-1].isdigit():
        return _is_ip(host, 4)
    return all(_LABEL.fullmatch(label) for label in labels)


def _is_ip(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False
