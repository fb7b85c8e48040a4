"""Footers of the run's data: a member asks the leader for them before it asks the Hub.

What the texts say is the hosts' business; here is decided who is asked and who is answered.
"""

from __future__ import annotations

from daisychain.cluster.effects import FooterCame, ServeFooter
from daisychain.cluster.events import FooterRead, FooterWanted
from daisychain.cluster.room_messages import FetchFooter, FooterIs
from daisychain.cluster.state import Core


def wanted(core: Core, event: FooterWanted) -> None:
    """The host needs a footer: ask the leader, if that is somebody else in reach."""
    leader = core.leader
    if leader in ("", core.me) or not core.alive(leader):
        core.do(FooterCame(event.file, event.part, 0, ""))
        return
    core.footers[event.file, event.part] = leader
    core.send(leader, FetchFooter(event.file, event.part))


def on_fetch_footer(core: Core, source: str, message: FetchFooter) -> None:
    """A member asks; only the leader answers, so that one device reads for all."""
    taking_part = core.attempt is not None and source in core.attempt.roster
    if core.leads and (source in core.known or taking_part):
        core.do(ServeFooter(source, message.file, message.part))
    else:
        core.dropped["footer for a stranger"] += 1


def read(core: Core, event: FooterRead) -> None:
    """The host has read what a member asked for."""
    core.send(event.peer, FooterIs(event.file, event.part, event.parts, event.text))


def on_footer_is(core: Core, source: str, message: FooterIs) -> None:
    """An answer counts once, and from the device that was asked."""
    key = message.file, message.part
    if core.footers.get(key) != source:
        core.dropped["footer unasked"] += 1
        return
    del core.footers[key]
    core.do(FooterCame(message.file, message.part, message.parts, message.text))
