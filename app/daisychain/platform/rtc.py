"""WebRTC connections: the browser's RTCPeerConnection behind a narrow face.

``Rtc``, ``PeerConnection`` and ``BulkPlane`` say what the cluster needs; tests bring others.
Channels are negotiated (agreed ids, made before the offer): a late one could lose what comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from daisychain.errors import ClusterError
from daisychain.platform.javascript import to_js
from daisychain.platform.scripts import import_script

CONTROL_CHANNEL, BULK_CHANNEL, URGENT_CHANNEL = 0, 1, 2
"""Messages; frames; frames of exponents.  None waits behind another channel's megabytes."""
CONTROL_LIMIT_BYTES = 1 << 16
CONTROL_BUFFER_BYTES = 4 << 20


class LinkError(ClusterError):
    """A connection to another device failed or was closed."""


@dataclass(frozen=True)
class IceServer:
    """A STUN or TURN server; user and credential are empty for STUN."""

    url: str
    user: str = field(default="", repr=False)
    credential: str = field(default="", repr=False)


@dataclass(frozen=True)
class IceSettings:
    """How connections find their way; no servers means one local network."""

    servers: tuple[IceServer, ...] = ()
    relay_only: bool = False


@dataclass(frozen=True)
class Path:
    """The way a connection takes: candidate types of both ends, and the round trip."""

    local: str = ""
    remote: str = ""
    rtt_ms: float | None = None


class ConnectionEvents(Protocol):
    """What a connection tells its owner; nothing comes after ``close``."""

    def on_candidate(self, line: str) -> None:
        """The browser found an address of its own; empty at the end of the search."""

    def on_state(self, state: str) -> None:
        """``connectionState``: connecting, connected, disconnected, failed or closed."""

    def on_open(self) -> None:
        """The channels are open."""

    def on_text(self, text: str) -> None:
        """A message of the control channel, at most 64 KiB."""

    def on_closed(self) -> None:
        """The other end closed the connection on purpose."""

    def on_dropped(self) -> None:
        """Something that is no control message was dropped."""


class PeerConnection(Protocol):
    """One RTCPeerConnection; the async methods raise LinkError."""

    async def offer(self, restart: bool) -> str:
        """Make an offer (with new ICE credentials on ``restart``), set it, return its SDP."""

    async def answer(self, offer: str) -> str:
        """Take an offer, set and return the SDP of the answer."""

    async def accept(self, answer: str) -> None:
        """Take the answer to our offer."""

    async def add_candidate(self, line: str) -> None:
        """Take a candidate of the other end; an unusable one is ignored."""

    async def path(self) -> Path:
        """The way in use just now."""

    def attach_bulk(self, peer: str) -> None:
        """Hand the channels for frames to the bulk plane as one more way to ``peer``."""

    def send_text(self, text: str) -> bool:
        """Send on the control channel; False if that is not open or stuck."""

    def close(self) -> None:
        """Close at once; the other end learns it within milliseconds."""


class BulkPlane(Protocol):
    """The byte pump, see app/js/bulk_channel.js; headers are those of ``cluster.wire``."""

    async def send(self, peer: str, header: bytes, data: Any) -> None:
        """Send one flow to a neighbour; LinkError when the link closes first."""

    def expect(self, peer: str, headers: Sequence[bytes]) -> None:
        """Await flows from a peer, or from any neighbour for an empty ``peer``."""

    def route(self, step: int, epoch: int, me: int, hops: Sequence[str]) -> None:
        """Forward frames of an attempt by their target's index."""

    def forget(self, step: int, epoch: int) -> None:
        """End an attempt: its flows are awaited and forwarded no more."""

    def abandon(self, step: int, epoch: int) -> None:
        """Send nothing more of an attempt that was given up; senders take it for sent."""

    def stop_serving(self, peer: str) -> None:
        """Send nothing more of state, later steps and plan to one who comes in."""

    def stop_fetching(self) -> None:
        """Await no state, later steps and plan any more; what has come of them is freed."""

    def fetched_frames(self) -> int:
        """Frames of state and plan that have come so far."""

    def frames_left(self, header: bytes) -> int:
        """Those of an awaited flow that are still to come; 0 if it is not awaited."""

    def missing(self) -> list[tuple[str, bytes, int]]:
        """Awaited flows: expected sender, header, frames that have not come."""

    def dropped(self) -> dict[str, int]:
        """Dropped frames by reason."""

    def traffic(self, peer: str) -> dict[str, float]:
        """channels, sentBytes, receivedBytes, megabytesPerSecond."""


class Rtc(Protocol):
    """This device's end of all connections: one certificate, one bulk plane."""

    fingerprint_sdp: str
    bulk: BulkPlane

    def connect(self, ice: IceSettings, control: bool, events: ConnectionEvents) -> PeerConnection:
        """A new connection with a bulk channel and, if ``control``, the channels beside it."""


BulkComplete = Callable[[str, bytes, Any], None]


async def open_rtc(complete: BulkComplete) -> Rtc:
    """This page's WebRTC; ``complete(peer, header, data)`` gets each awaited flow.

    Raises ClusterError where there is none.
    """
    if sys.platform != "emscripten":
        raise ClusterError("Rooms need a browser's WebRTC.", do="Run this in the page.")
    return await BrowserRtc.open(complete)


async def local_network_denied() -> bool:
    """Whether the person (or a policy) forbade this page to reach devices of the local network."""
    if sys.platform != "emscripten":
        return False
    import js
    from pyodide.ffi import JsException

    try:
        status = await js.navigator.permissions.query(to_js({"name": "local-network-access"}))
    except (JsException, AttributeError):  # a browser that has no such permission
        return False
    return bool(status.state == "denied")


class BrowserRtc:
    """WebRTC of the page."""

    def __init__(self, certificate: Any, fingerprint_sdp: str, bulk: BrowserBulkPlane) -> None:
        self._certificate = certificate
        self.fingerprint_sdp = fingerprint_sdp
        self.bulk = bulk

    @classmethod
    async def open(cls, complete: BulkComplete) -> BrowserRtc:
        """Make the certificate; its fingerprint is read from an offer that is thrown away."""
        import js

        if not getattr(js, "RTCPeerConnection", None):
            raise ClusterError(
                "This browser has no WebRTC.",
                "It is switched off, or forbidden in this kind of page.",
                "Use another browser for rooms; training alone works without it.",
            )
        method = to_js({"name": "ECDSA", "namedCurve": "P-256"})
        certificate = await js.RTCPeerConnection.generateCertificate(method)
        probe = js.RTCPeerConnection.new(to_js({"certificates": [certificate]}))
        probe.createDataChannel("probe")
        offer = await probe.createOffer()
        probe.close()
        script = await import_script("js/bulk_channel.js")
        return cls(certificate, str(offer.sdp), BrowserBulkPlane(script, complete))

    def connect(self, ice: IceSettings, control: bool, events: ConnectionEvents) -> PeerConnection:
        """A new connection, see ``Rtc``."""
        import js

        servers = [
            {"urls": server.url, "username": server.user, "credential": server.credential}
            if server.user
            else {"urls": server.url}
            for server in ice.servers
        ]
        configuration = {
            "iceServers": servers,
            "iceTransportPolicy": "relay" if ice.relay_only else "all",
            "certificates": [self._certificate],
        }
        connection = js.RTCPeerConnection.new(to_js(configuration))
        return BrowserConnection(connection, self.bulk, control, events)


class BrowserConnection:
    """One RTCPeerConnection of the page."""

    def __init__(
        self, connection: Any, plane: BrowserBulkPlane, control: bool, events: ConnectionEvents
    ) -> None:
        self._connection, self._plane, self._events = connection, plane, events
        self._listeners: list[tuple[Any, str, Any]] = []
        self._peer = ""
        self._bulk = self._channel("bulk", BULK_CHANNEL, "low")
        self._control: Any = None
        self._urgent: Any = None
        if control:
            self._control = self._channel("control", CONTROL_CHANNEL, "high")
            self._urgent = self._channel("urgent", URGENT_CHANNEL, "high")
            self._listen(self._control, "message", self._on_message)
        leading = self._control or self._bulk
        self._listen(leading, "open", lambda _event: events.on_open())
        self._listen(leading, "close", lambda _event: events.on_closed())
        self._listen(connection, "icecandidate", self._on_candidate)
        self._listen(connection, "connectionstatechange", self._on_state)
        self._listen(connection, "datachannel", self._on_foreign_channel)

    def _channel(self, name: str, number: int, priority: str) -> Any:
        options = {"negotiated": True, "id": number, "priority": priority}
        return self._connection.createDataChannel(name, to_js(options))

    def _listen(self, target: Any, name: str, callback: Callable[[Any], None]) -> None:
        from pyodide.ffi import create_proxy

        proxy = create_proxy(callback)
        self._listeners.append((target, name, proxy))
        target.addEventListener(name, proxy)

    async def offer(self, restart: bool) -> str:
        """Make an offer, see ``PeerConnection``."""
        options = to_js({"iceRestart": restart})
        return await self._describe(lambda: self._connection.createOffer(options))

    async def answer(self, offer: str) -> str:
        """Take an offer and answer it."""
        await self._set_remote("offer", offer)
        return await self._describe(self._connection.createAnswer)

    async def accept(self, answer: str) -> None:
        """Take the answer to our offer."""
        await self._set_remote("answer", answer)

    async def add_candidate(self, line: str) -> None:
        """Take a candidate of the other end; an unusable one is ignored."""
        from pyodide.ffi import JsException

        try:
            await self._connection.addIceCandidate(to_js({"candidate": line, "sdpMid": "0"}))
        except JsException:
            self._events.on_dropped()

    async def path(self) -> Path:
        """The way in use just now."""
        from pyodide.ffi import JsException

        try:
            report = await self._connection.getStats()
        except JsException as cause:
            raise _link_error(cause) from cause
        return _path_of(list(report.values()))

    def send_text(self, text: str) -> bool:
        """Send on the control channel; False if that is not open or stuck."""
        channel = self._control
        if channel is None or channel.readyState != "open":
            return False
        if channel.bufferedAmount + len(text) > CONTROL_BUFFER_BYTES:
            return False
        channel.send(text)
        return True

    def attach_bulk(self, peer: str) -> None:
        """Hand the channels for frames to the bulk plane."""
        self._peer = peer
        self._plane.add_channel(peer, self._bulk)
        if self._urgent:
            self._plane.add_channel(peer, self._urgent, urgent=True)

    def close(self) -> None:
        """Close at once."""
        listeners, self._listeners = self._listeners, []
        for target, name, proxy in listeners:
            target.removeEventListener(name, proxy)
            proxy.destroy()
        if self._peer:
            self._plane.remove_channel(self._peer, self._bulk)
            if self._urgent:
                self._plane.remove_channel(self._peer, self._urgent)
        self._connection.close()

    async def _describe(self, create: Callable[[], Any]) -> str:
        from pyodide.ffi import JsException

        try:
            description = await create()
            await self._connection.setLocalDescription(description)
        except JsException as cause:
            raise _link_error(cause) from cause
        return str(description.sdp)

    async def _set_remote(self, kind: str, sdp: str) -> None:
        from pyodide.ffi import JsException

        try:
            await self._connection.setRemoteDescription(to_js({"type": kind, "sdp": sdp}))
        except JsException as cause:
            raise _link_error(cause) from cause

    def _on_candidate(self, event: Any) -> None:
        candidate = event.candidate
        self._events.on_candidate(str(candidate.candidate) if candidate else "")

    def _on_state(self, _event: Any) -> None:
        self._events.on_state(str(self._connection.connectionState))

    def _on_message(self, event: Any) -> None:
        if isinstance(event.data, str) and len(event.data) <= CONTROL_LIMIT_BYTES:
            self._events.on_text(event.data)
        else:
            self._events.on_dropped()

    def _on_foreign_channel(self, event: Any) -> None:
        event.channel.close()
        self._events.on_dropped()


class BrowserBulkPlane:
    """app/js/bulk_channel.js."""

    def __init__(self, script: Any, complete: BulkComplete) -> None:
        from pyodide.ffi import create_proxy

        self._complete = create_proxy(
            lambda peer, header, data: complete(str(peer), bytes(header.to_bytes()), data)
        )
        self._plane = script.BulkPlane.new(self._complete)

    def add_channel(self, peer: str, channel: Any, *, urgent: bool = False) -> None:
        """Use one more data channel to a neighbour, perhaps for urgent frames alone."""
        self._plane.addChannel(peer, channel, urgent)

    def remove_channel(self, peer: str, channel: Any) -> None:
        """Stop using a data channel that we closed."""
        self._plane.removeChannel(peer, channel)

    async def send(self, peer: str, header: bytes, data: Any) -> None:
        """Send one flow; ``data`` is bytes or a Uint8Array that stays as it is until then."""
        from pyodide.ffi import JsException

        try:
            await self._plane.send(peer, to_js(header), to_js(data))
        except JsException as cause:
            raise _link_error(cause) from cause

    def expect(self, peer: str, headers: Sequence[bytes]) -> None:
        """Await flows."""
        self._plane.expect(peer, to_js(b"".join(headers)))

    def route(self, step: int, epoch: int, me: int, hops: Sequence[str]) -> None:
        """Forward frames of an attempt."""
        self._plane.route(step, epoch, me, to_js(list(hops)))

    def forget(self, step: int, epoch: int) -> None:
        """End an attempt."""
        self._plane.forget(step, epoch)

    def abandon(self, step: int, epoch: int) -> None:
        """Send nothing more of an attempt."""
        self._plane.abandon(step, epoch)

    def stop_serving(self, peer: str) -> None:
        """Send nothing more of what is served."""
        self._plane.stopServing(peer)

    def stop_fetching(self) -> None:
        """Await nothing more of what is fetched."""
        self._plane.stopFetching()

    def fetched_frames(self) -> int:
        """Frames of what is fetched."""
        return int(self._plane.fetchedFrames())

    def frames_left(self, header: bytes) -> int:
        """Frames of a flow that are still to come."""
        return int(self._plane.framesLeft(to_js(header)))

    def missing(self) -> list[tuple[str, bytes, int]]:
        """Awaited flows."""
        flows = self._plane.missing()
        return [(str(f.peer), bytes(f.header.to_bytes()), int(f.left)) for f in flows]

    def dropped(self) -> dict[str, int]:
        """Dropped frames by reason."""
        return dict(self._plane.dropped().to_py())

    def traffic(self, peer: str) -> dict[str, float]:
        """What was moved to and from a neighbour."""
        return dict(self._plane.traffic(peer).to_py())


def _link_error(cause: Any) -> LinkError:
    return LinkError(f"A connection to another device failed ({cause.message}).")


def _path_of(entries: list[Any]) -> Path:
    """The selected candidate pair in a statistics report of Chromium, Firefox or Safari."""
    by_id = {str(entry.id): entry for entry in entries}
    selected = {str(getattr(e, "selectedCandidatePairId", "")) for e in entries}
    for entry in entries:
        if entry.type != "candidate-pair" or getattr(entry, "state", "") != "succeeded":
            continue
        if str(entry.id) in selected or getattr(entry, "selected", False):
            ends = (by_id.get(str(entry.localCandidateId)), by_id.get(str(entry.remoteCandidateId)))
            local, remote = (str(getattr(end, "candidateType", "")) for end in ends)
            rtt_s = getattr(entry, "currentRoundTripTime", None)
            return Path(local, remote, None if rtt_s is None else 1000.0 * float(rtt_s))
    return Path()
