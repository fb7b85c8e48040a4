"""Pairing by hand: two people carry an offer and an answer across, as text or as QR codes.

It needs no third party at all.  The host (or any member) makes an offer, the newcomer turns it into
an answer, the host takes the answer; the connection then opens by itself, within minutes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from daisychain.cluster.connection import Connection
from daisychain.cluster.descriptions import Candidate, PairingError, pack, unpack
from daisychain.cluster.identity import member_id
from daisychain.cluster.links import LinkSettings
from daisychain.platform.rtc import Rtc

MAX_OFFERS = 4
HOST_GATHER_MS = 2_000.0
SERVER_GATHER_MS = 4_000.0
"""A dead STUN server would hold the search for addresses up for 40 s."""


class HandPairing:
    """The offers that this device handed out and that wait for their answers.

    ``adopt(peer, connection)`` takes a connection over once its other end is known.
    """

    def __init__(
        self,
        me: str,
        rtc: Rtc,
        settings: LinkSettings,
        adopt: Callable[[str, Connection], None],
        now_ms: Callable[[], float],
    ) -> None:
        self._me, self._rtc, self._settings = me, rtc, settings
        self._adopt, self._now_ms = adopt, now_ms
        self._offers: list[Connection] = []
        servers = settings.connection.ice.servers
        self._gather_ms = SERVER_GATHER_MS if servers else HOST_GATHER_MS

    async def offer(self) -> str:
        """A fresh offer as text of 110 to 130 characters; the oldest of five is void."""
        connection = self._connection(mine=True)
        self._offers.append(connection)
        if len(self._offers) > MAX_OFFERS:
            self._offers.pop(0).close()
        return pack(await connection.offer(self._gather_ms))

    async def answer(self, offer_text: str) -> str:
        """The answer to the other device's offer, to be carried back."""
        offer = unpack(offer_text)
        if offer.role != "actpass":
            raise PairingError(
                "This is an answer, not an offer.",
                do="Give it to the device that made the offer.",
            )
        peer = member_id(offer.fingerprint)
        if peer == self._me:
            raise PairingError(
                "This offer is from this very device.", do="Open it on the other device."
            )
        connection = self._connection(mine=False)
        self._adopt(peer, connection)
        return pack(await connection.answer(offer, self._gather_ms))

    async def accept(self, answer_text: str, approve: Callable[[str], None]) -> None:
        """Take the answer to the latest offer; ``approve`` hears the other device's id before that
        can knock."""
        answer = unpack(answer_text)
        if answer.role == "actpass":
            raise PairingError(
                "This is an offer, not an answer.",
                do="Open it on the other device to get the answer.",
            )
        if not self._offers:
            raise PairingError(
                "No offer of this device waits for an answer.", do="Make a new offer."
            )
        peer = member_id(answer.fingerprint)
        connection = self._offers.pop()
        approve(peer)
        self._adopt(peer, connection)  # before it can open: nothing that it says may be lost
        await connection.accept(answer)

    def close(self) -> None:
        """Withdraw all offers."""
        for connection in self._offers:
            connection.close()
        self._offers.clear()

    def _connection(self, mine: bool) -> Connection:
        call, how = secrets.token_hex(8), self._settings.connection
        connection = Connection(self._rtc, how, call, 0, mine, _Waiting(), self._now_ms)
        connection.by_hand = True
        return connection


class _Waiting:
    """Owner of an offer that waits for its answer: until then nothing comes from the other end."""

    def connection_open(self, connection: Connection) -> None:
        """Not before the answer."""

    def connection_state(self, connection: Connection) -> None:
        """The search for addresses goes on."""

    def connection_text(self, connection: Connection, text: str) -> None:
        """Not before the answer."""

    def connection_closed(self, connection: Connection) -> None:
        """Not before the answer."""

    def connection_candidates(
        self, connection: Connection, candidates: tuple[Candidate, ...]
    ) -> None:
        """What was found too late for the text cannot be carried any more."""
