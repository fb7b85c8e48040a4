"""The list of a room's members, and its form as a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from daisychain.cluster.identity import Member, clean_name, is_member_id
from daisychain.cluster.roster import MAX_MEMBERS

MAX_REMOVED = 256


@dataclass(frozen=True)
class Register:
    """The room's members under their host; a higher (term, revision) replaces a lower one."""

    term: int
    revision: int
    host: str
    members: tuple[Member, ...]
    removed: tuple[str, ...] = ()

    @property
    def ids(self) -> frozenset[str]:
        """Ids of all members."""
        return frozenset(member.id for member in self.members)

    def name_of(self, member_id: str) -> str:
        """A member's name, or its id if it is none."""
        names = {member.id: member.name for member in self.members}
        return names.get(member_id, member_id)


def write_register(register: Register) -> dict[str, Any]:
    """The message that carries a register."""
    return {
        "t": "register",
        "term": register.term,
        "revision": register.revision,
        "host": register.host,
        "members": [[m.id, m.name, m.kind] for m in register.members],
        "removed": list(register.removed),
    }


def read_register(body: dict[str, Any]) -> Register | None:
    """The register in a message, or None if any part of it is not as it must be."""
    term, revision, host = body.get("term"), body.get("revision"), body.get("host")
    members, removed = body.get("members"), body.get("removed")
    if type(term) is not int or type(revision) is not int or not isinstance(host, str):
        return None
    if not isinstance(members, list) or not 1 <= len(members) <= MAX_MEMBERS:
        return None
    if not isinstance(removed, list) or len(removed) > MAX_REMOVED:
        return None
    if not all(is_member_id(device) for device in removed):
        return None
    read: list[Member] = []
    for row in members:
        if not isinstance(row, list) or len(row) != 3 or not is_member_id(row[0]):
            return None
        read.append(Member(row[0], clean_name(row[1], "A device"), clean_name(row[2], "")))
    ids = [member.id for member in read]
    if len(set(ids)) < len(ids) or host not in ids or not 0 < term < 1 << 32:
        return None
    if not 0 < revision < 1 << 32:
        return None
    return Register(term, revision, host, tuple(sorted(read)), tuple(removed))
