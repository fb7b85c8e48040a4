"""What a person does about the devices of a room: lets them in, removes, names, pairs by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod

from daisychain.cluster import events
from daisychain.cluster.connection import ConnectionSettings
from daisychain.cluster.links import LinkSettings
from daisychain.cluster.meeting import relays_for
from daisychain.cluster.mesh import Mesh
from daisychain.cluster.mesh_events import MeshSettings
from daisychain.platform import page_url
from daisychain.room.turn import ice_settings, kept_relay
from daisychain.settings import Settings


def mesh_settings(settings: Settings, approve_all: bool) -> MeshSettings:
    """How this page meets others; raises SettingsError for an unusable setting of the way."""
    page = page_url()
    ice = ice_settings(settings.stun, page, kept_relay())
    return MeshSettings(
        relays=relays_for(settings.relay, page),
        links=LinkSettings(connection=ConnectionSettings(ice=ice)),
        approve_all=approve_all,
    )


class People(ABC):
    """The part of a room's session that is about its devices."""

    mesh: Mesh
    name: str

    @abstractmethod
    def _give(self, event: events.Event) -> None:
        """Tells the step protocol, as long as this device takes part."""

    @abstractmethod
    def _changed(self) -> None:
        """The page is to be drawn anew."""

    def accept(self, device: str) -> None:
        """Host: lets a device in that knocked."""
        self.mesh.accept(device)
        self._changed()

    def refuse(self, device: str) -> None:
        """Host: turns a device away that knocked."""
        self.mesh.refuse(device)
        self._changed()

    def remove(self, device: str) -> None:
        """Host: removes a member for good."""
        self._give(events.Kick(device))
        self.mesh.remove(device)
        self._changed()

    def rename(self, name: str) -> None:
        """Changes this device's name."""
        self.name = name
        self.mesh.rename(name)
        self._give(events.Rename(name))

    async def hand_offer(self) -> str:
        """Pairing without a relay, first device: the text for the second one."""
        return await self.mesh.hand_offer()

    async def hand_answer(self, offer: str) -> str:
        """Second device: the text to carry back."""
        return await self.mesh.hand_answer(offer)

    async def hand_accept(self, answer: str) -> None:
        """First device: takes the second one's text."""
        await self.mesh.hand_accept(answer)
