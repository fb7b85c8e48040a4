"""What a room adds to the page of a run: its door, its devices, the way in for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from daisychain import platform
from daisychain.cluster.room_code import new_room_code
from daisychain.platform.dom import Dom, Node
from daisychain.settings import Settings
from daisychain.ui import links, stages
from daisychain.ui.backing import Backing, RoomEntry, RoomSession
from daisychain.ui.by_hand import ByHand
from daisychain.ui.door import Door
from daisychain.ui.invitation import Invitation
from daisychain.ui.knocks import Knocks
from daisychain.ui.members import Members

State = Mapping[str, Any]

LOOK_AGAIN_S = 1.0

NAME_KEY = "name"
"""Storage key of what this device is called in rooms."""


def own_name(settings: Settings) -> str:
    """What this device is called: by the link, by its owner at another time, or by its kind."""
    return settings.name or platform.storage_get(NAME_KEY) or platform.device_name()


def own_room() -> RoomEntry:
    """A room that begins here: under the code in the page's address, or a new one."""
    code = links.room_in_page()
    return RoomEntry("host", code or new_room_code(), "", new_code=not code)


class Room:
    """Parts that the page places: ``knocks``, ``door``, ``members``, ``invitation``, ``by_hand``.

    ``copy(text, done, said)`` fills the clipboard, ``changed()`` asks for a drawing, ``correct()``
    asks for another code.
    """

    def __init__(
        self,
        dom: Dom,
        backing: Backing,
        copy: Callable[[str, str, Node], object],
        changed: Callable[[], object],
        correct: Callable[[], object],
    ) -> None:
        self._session: RoomSession | None = None
        self._code = self._link = ""
        self._everybody = self._hearing = False
        self._by_hand_only = False
        self._next_look: asyncio.TimerHandle | None = None
        self.knocks = Knocks(dom, self._answer)
        self.door = Door(dom, changed, correct)
        self.members = Members(dom, self._remove, self._rename)
        self.invitation = Invitation(
            dom,
            backing.draw_qr,
            lambda text, done: copy(text, done, self.invitation.said),
            self._let_in,
        )
        self.by_hand = ByHand(
            dom,
            backing.draw_qr,
            backing.scan_qr,
            lambda text, done: copy(text, done, self.by_hand.said),
        )
        self._changed = changed

    def enter(self, session: RoomSession, settings: Settings, entry: RoomEntry) -> None:
        """A session in a room begins."""
        self._session = session
        self._code, self._link = entry.code, links.invitation(settings, entry.code)
        self._everybody = settings.approve == "all"
        self._by_hand_only = False
        self.members.call(entry.name)
        self.invitation.unfold(entry.role == "host")
        self.by_hand.open(session)

    def leave(self) -> None:
        """It is over, or another page stands in its place."""
        self._session = None
        self.by_hand.close()

    @property
    def in_vain(self) -> bool:
        """Whether the room that this device looks for seems to be gone."""
        return self.door.in_vain

    def hear(self, state: State) -> None:
        """Something has changed; the page may be in the background."""
        if not self._everybody or self._session is None or self._hearing:
            return
        self._hearing = True  # to accept is a change, too
        for device in (state.get("room") or {}).get("waiting") or ():
            self._session.accept(str(device["id"]))
        self._hearing = False

    def draw(self, state: State) -> None:
        """Shows the room as it stands; all of it is hidden for a run outside rooms."""
        room, members = state.get("room") or {}, state.get("members") or ()
        stage, host = stages.stage(state), stages.is_host(state)
        over = state.get("phase") in ("halt", "error") or stage in stages.OVER
        inside = stage == "inside" and not over
        self.knocks.draw(room.get("waiting") or () if inside else (), host and self._everybody)
        cut_off = self.door.draw({**state, "room": {**room, "stage": "" if over else stage}})
        self.members.draw(members if stage else (), str(room.get("host") or ""), host and not over)
        self.invitation.draw(self._code, self._link, host=host, everybody=self._everybody)
        opening = stage == "opening" and room.get("role") == "host"
        meets = bool(self._code) and (opening or (inside and bool(room.get("relays"))))
        self.invitation.root.show(meets and not over)
        self.by_hand.draw(inviting=inside, joining=stage == "looking" and not over)
        by_hand_only = cut_off or (stage == "looking" and not self._code)
        if by_hand_only and not self._by_hand_only:  # then it stays as a person leaves it
            self.by_hand.unfold(True)
        self._by_hand_only = by_hand_only
        if stage in ("looking", "knocking") and not over:
            self._look_again()

    def _look_again(self) -> None:
        """What happens at the door comes without a call."""
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look)

    def _look(self) -> None:
        self._next_look = None
        self._changed()

    def _answer(self, device: str, accepted: bool) -> None:
        if self._session is not None:
            (self._session.accept if accepted else self._session.refuse)(device)
            self._changed()

    def _remove(self, device: str) -> None:
        if self._session is not None:
            self._session.remove(device)
            self._changed()

    def _rename(self, name: str) -> None:
        if self._session is not None and name:
            platform.storage_set(NAME_KEY, name)
            self._session.rename(name)
            self._changed()

    def _let_in(self, everybody: bool) -> None:
        self._everybody = everybody
        self._changed()
