"""A mounted page in a scripted room, for the tests of both ends."""

from __future__ import annotations

from daisychain.platform import cpython
from tests.ui.scripted_room import ScriptedRoom
from tests.ui.test_page import URL, Shown

CODE = "K7QDM2XP9RTW4HBN"
SHOWN_CODE = "K7QD-M2XP-9RTW-4HBN"


class Room(Shown):
    """A mounted page whose last session is one in a room."""

    @property
    def session(self) -> ScriptedRoom:
        session = self.sessions[-1]
        assert isinstance(session, ScriptedRoom)
        return session

    def inside(self, *others: dict[str, str], steps: int = 0) -> None:
        """The room is open and trains."""
        self.session.others.extend(others)
        self.session.enter("inside")
        self.session.go("train")
        self.session.play(steps)

    def rows(self) -> dict[str, str]:
        """The table of devices, by name."""
        (table,) = (
            e for e in self.window.document.body.all() if e.attributes.get("class") == "members"
        )
        (body,) = (e for e in table.all() if e.tag == "tbody")
        return {row.children[0].children[0].textContent: row.text_shown() for row in body.children}


def reloaded(place: str | None = None) -> Room:
    """Another page, or the same one again, after this one was closed in the ordinary way."""
    cpython.simulate_page_event("pagehide")
    return Room(cpython.page_url().removeprefix(URL) if place is None else place)


async def host(query: str = "", *others: dict[str, str], steps: int = 0) -> Room:
    shown = Room(f"?start=room{query}#room={SHOWN_CODE}")
    await shown.drawn()
    shown.inside(*others, steps=steps)
    await shown.drawn()
    return shown


async def joiner(query: str = "") -> Room:
    shown = Room(f"?start=join{query}#room={SHOWN_CODE}")
    await shown.drawn()
    return shown
