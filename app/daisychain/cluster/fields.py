"""Field types of the control messages: each carries the check that a peer's value must pass.

A field is written ``step: Count``; `checks` finds, for a message class, the function that turns
each plain JSON value into the field's value or raises `Malformed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, get_args, get_type_hints

from daisychain.cluster.roster import MAX_MEMBERS, is_id
from daisychain.errors import ClusterError

U32 = (1 << 32) - 1
U48 = (1 << 48) - 1
MAX_SCALARS = 16
MAX_MICRO_BATCHES = 1024
LABEL_CHARACTERS = 64
MAX_SETTINGS_CHARACTERS = 8192
TREE_FANOUT = 64
MAX_FOOTER_PARTS = 8
FOOTER_PART_CHARACTERS = 32_768
_HASH = re.compile(r"[0-9a-f]{32}\Z")
_BASE64 = re.compile(rf"[A-Za-z0-9+/=]{{0,{FOOTER_PART_CHARACTERS}}}\Z")
_TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*\Z")

Check = Callable[[Any], Any]
"""Turns a plain JSON value into the field's value, or raises Malformed."""


class Malformed(ClusterError):
    """Something that came from a peer is not what it claims to be; it is counted and dropped."""


class Phase(StrEnum):
    """What a device is doing, as its heartbeat says."""

    IDLE = "idle"
    COMPUTE = "compute"
    GUARD = "guard"
    JOINING = "joining"
    PAUSED = "paused"
    HALTED = "halted"
    LEFT = "left"


class Reason(StrEnum):
    """Why a proposal was declined, a joiner refused or an attempt aborted."""

    BEHIND = "behind"
    AHEAD = "ahead"
    PROMISED = "promised"
    FAILED = "failed"
    KICKED = "kicked"
    NOT_APPROVED = "not-approved"
    FULL = "full"
    LOST = "lost"
    JOIN = "join"
    DEADLINE = "deadline"
    GUARD = "guard"
    STATE = "state"
    SETTINGS = "settings"


def number(high: int, low: int = 0) -> Check:
    """Check of an integer in low..high."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise Malformed("A number of a message is out of range.")
        return value

    return check


def text(good: Callable[[str], object], optional: bool = False) -> Check:
    """Check of a text that is ``good`` (or empty, if ``optional``)."""

    def check(value: Any) -> str:
        if type(value) is str and (good(value) or (optional and value == "")):
            return value
        raise Malformed("A text of a message has forbidden characters or a wrong length.")

    return check


def many(item: Check, most: int, least: int = 0) -> Check:
    """Check of a list of ``least`` to ``most`` items."""

    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or not least <= len(value) <= most:
            raise Malformed("A list of a message is too long or too short.")
        return tuple(map(item, value))

    return check


def record(kind: type[Any]) -> Check:
    """Check of a list that holds the fields of dataclass ``kind`` in order."""
    fields = checks(kind)

    def check(value: Any) -> Any:
        if type(value) is not list or len(value) != len(fields):
            raise Malformed("A record of a message has a wrong number of fields.")
        return kind(*[check(v) for check, v in zip(fields, value, strict=True)])

    return check


def checks(kind: type[Any]) -> tuple[Check, ...]:
    """The checks of the fields of a message or record class, in order."""
    return tuple(map(_check_of, get_type_hints(kind, include_extras=True).values()))


def _check_of(hint: Any) -> Check:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _one_of(hint)
    if hint is bool:
        return _flag
    check: Check = get_args(hint)[1]
    return check


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise Malformed("A flag of a message is neither true nor false.")
    return value


def _one_of(kind: type[StrEnum]) -> Check:
    values = {item.value: item for item in kind}

    def check(value: Any) -> StrEnum:
        if type(value) is not str or value not in values:
            raise Malformed(f"A message names an unknown {kind.__name__.lower()}.")
        return values[value]

    return check


def _short(longest: int) -> Callable[[str], object]:
    return lambda value: len(value) <= longest and _TEXT.match(value)


def as_label(sentence: str) -> str:
    """The beginning of a text of any length, as a `Label` holds it."""
    printable = "".join(c if _TEXT.match(c) else " " for c in sentence)
    return printable[:LABEL_CHARACTERS]


_id, _hash = text(is_id), text(_HASH.match)

Count = Annotated[int, number(U32)]
Positive = Annotated[int, number(U32, 1)]
Total = Annotated[int, number(U48)]
MicroBatches = Annotated[int, number(MAX_MICRO_BATCHES, 1)]
Level = Annotated[int, number(8)]
Id = Annotated[str, _id]
NoOrId = Annotated[str, text(is_id, optional=True)]
Hash = Annotated[str, _hash]
NoOrHash = Annotated[str, text(_HASH.match, optional=True)]
Label = Annotated[str, text(_short(LABEL_CHARACTERS))]
FooterPart = Annotated[int, number(MAX_FOOTER_PARTS)]
FooterText = Annotated[str, text(_BASE64.match)]
SettingsText = Annotated[str, text(_short(MAX_SETTINGS_CHARACTERS))]
Ids = Annotated[tuple[str, ...], many(_id, MAX_MEMBERS)]
Roster = Annotated[tuple[str, ...], many(_id, MAX_MEMBERS, 1)]
Hashes = Annotated[tuple[str, ...], many(_hash, TREE_FANOUT)]
Scalars = Annotated[tuple[int, ...], many(number(U32), MAX_SCALARS)]
LinkMasks = Annotated[tuple[int, ...], many(number(U32), MAX_MEMBERS, 1)]
