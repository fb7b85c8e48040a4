"""The host of the step protocol: carries its effects out on the replica, the reducer, the links.

``cluster.protocol`` says what a host must keep to.  Effects that take time are queued in two lanes:
what needs the player, and the exchange's arithmetic, which goes on while the player computes the
gradients of later buckets.  The answers go back to the node as events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from daisychain.cluster import effects, events, wire
from daisychain.cluster.effects import Mode
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.fields import Malformed
from daisychain.cluster.protocol import Node
from daisychain.cluster.reassembly import awaited_flows
from daisychain.cluster.reduce_plan import SERVED, Flow, Kind, framed_bytes
from daisychain.cluster.reducer import Reducer
from daisychain.errors import ClusterError, DaisyChainError, DeviceError, DeviceLost
from daisychain.platform import monotonic_ms
from daisychain.room.arrival import Arrival
from daisychain.room.books import Attempt, squares_hash
from daisychain.room.exchange_work import ExchangeWork
from daisychain.room.footers import Footers
from daisychain.room.guests import Guests
from daisychain.room.lane import Action, Lane
from daisychain.room.recovery import Recovery, consequence, is_over
from daisychain.room.replay import ReplayStep
from daisychain.room.replica import Replica, as_bytes, hash_state
from daisychain.room.run import Run, RunMaker
from daisychain.room.transfers import Transfers
from daisychain.workshop import Result

TICK_MS = 250


class Links(Protocol):
    """What the host needs of `cluster.mesh.Mesh`."""

    @property
    def bulk(self) -> Any: ...

    def send_control(self, peer: str, text: str) -> bool: ...

    async def send_bulk(self, peer: str, header: bytes, data: Any) -> None: ...


@dataclass
class Copy:
    """The state as it is after a step, and its hash once that is wanted."""

    step: int
    contents: list[Any]
    digest: str = ""


class Host:
    """One device's host; ``run`` is set for the device that founds the room."""

    def __init__(
        self,
        node: Node,
        links: Links,
        maker: RunMaker,
        on_effect: Callable[[effects.Effect], None],
        run: Run | None = None,
        now_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        self.node, self.links, self._maker = node, links, maker
        self._on_effect, self._now_ms = on_effect, now_ms
        self.run = run
        self._attempt: Attempt | None = None
        self._transfers = Transfers(links.send_bulk, node.core.dropped)
        self._guests = Guests(self._transfers.start)
        self._footers = Footers(node, self.give)
        if run is not None:
            self._footers.use(run.replica.source)
        self._last_reduced: tuple[int, Exchange, Any] | None = None
        self._copied: Copy | None = None
        self._player_lane = Lane(self._failed)
        self._exchange = ExchangeWork(
            lambda: self._active()[1], lambda a: a is self._attempt, self.give, self._failed
        )
        self._exchange_memory = self._exchange.memory
        self._recovery = Recovery(node, maker, self.give, on_effect, self._exchange_memory)
        self._arrival = Arrival(node, links, maker, self.give, self._recovery, self._use_run)
        self._ticking = Lane(self._failed)
        self._ticking.add(self._tick, None)
        self.failure: DaisyChainError | None = None

    # ------------------------------------------------------------------ in

    def give(self, event: events.Event) -> None:
        """An event for the node; its effects are carried out at once or queued."""
        self.carry_out(self.node.handle(event, int(self._now_ms())))

    def control(self, peer: str, text: str) -> None:
        """A control message from a linked member; malformed ones are dropped."""
        try:
            envelope = wire.decode(text.encode())
        except Malformed:
            self.node.core.dropped["malformed"] += 1
            return
        self.give(events.Received(peer, envelope))

    def bulk(self, peer: str, header: bytes, data: Any) -> None:
        """An awaited flow that is complete."""
        frame = wire.decode_flow_header(header)
        if frame.kind in SERVED:
            self._arrival.came(frame, data)
        else:
            self._flow_came((frame.step, frame.epoch), frame, data)

    def _flow_came(self, key: tuple[int, int], frame: wire.Frame, data: Any) -> None:
        attempt = self._attempt
        if attempt is None or attempt.key != key:
            return
        flow = Flow(frame.kind, frame.bucket, frame.origin, frame.target)
        attempt.received[flow] = data
        attempt.received_bytes += framed_bytes(len(data))
        if flow.kind is Kind.GRADIENT_DOWN:
            self._exchange.store(attempt, flow)
        else:
            self.give(events.FlowReceived(*key, flow))

    def begin_from(self, state: list[Any]) -> None:
        """The run has begun with this state, not with initial weights."""
        self._recovery.replay.start(state)

    def leave(self) -> None:
        """Takes no further part; the run stays for ``between``.  The links are their opener's."""
        self._exchange.close()
        self._transfers.close()
        self._footers.close()
        self._ticking.close()

    def close(self) -> None:
        """Stops working."""
        self.leave()
        self._player_lane.close()

    # ------------------------------------------------------------------ out

    def carry_out(self, wanted: Iterable[effects.Effect]) -> None:
        """Effects in their order; the slow ones are queued in that order."""
        for effect in wanted:
            match effect:
                case effects.Send():
                    self.links.send_control(effect.link, wire.encode(effect.envelope).decode())
                case effects.BeginAttempt():
                    self._begin(effect)
                case effects.AbortAttempt():
                    self._end_attempt((effect.step, effect.epoch))
                    self.links.bulk.abandon(effect.step, effect.epoch)
                case effects.SendFlow():
                    self._send_flow(effect)
                case effects.Work():
                    self._exchange.work(self._attempt, effect)
                case effects.HashReduced():
                    self._later(self._hash_reduced, effect)
                case effects.Apply():
                    self._apply_later(effect)
                case effects.HashState():
                    self._later(self._hash_state, effect)
                case effects.KeepState():
                    self.links.bulk.stop_serving(effect.joiner)
                    self._guests.keep(effect)
                    self._later(self._keep_state, effect)
                case effects.ServeState():
                    if not self._guests.serve(effect):  # its state is still to be set aside
                        self._later(self._serve, effect)
                case effects.SendCatchUp():
                    self._later(self._send_catch_up, effect)
                case effects.ServePlan():
                    self._guests.serve_plan(effect, self.run.plan if self.run else None)
                case effects.ServeFooter() | effects.FooterCame():
                    self._footers.carry_out(effect)
                case effects.StopServing():
                    self.links.bulk.stop_serving(effect.joiner)
                    self._guests.stop(effect.joiner)
                case effects.FetchState():
                    self._arrival.expect(effect, self.run)
                    self._later(self._fetch_state, effect)
                case effects.AwaitSteps():
                    self._arrival.expect(effect, self.run)
                case effects.UseState():
                    self._arrival.use_state()
                case effects.ReadLeaves():
                    self._later(self._read_leaves, effect)
                case _:
                    if isinstance(effect, effects.ModeChanged) and effect.mode is not Mode.JOINING:
                        self._arrival.end()
                    self._on_effect(effect)

    def between(self, action: Callable[[Run], Awaitable[Result]]) -> asyncio.Future[Result]:
        """Queues something to be done with the run, behind what is queued already; it fails with
        DeviceError while there is no run here or its state is lost."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        async def act(_: None) -> None:
            try:
                if self.run is None or self._recovery.is_stateless:
                    raise DeviceError("The model is not on this device at present.")
                result = await action(self.run)
                if not done.done():
                    done.set_result(result)
            except DaisyChainError as error:
                if not done.done():
                    done.set_exception(error)
                if isinstance(error, DeviceLost):
                    raise

        self._player_lane.add(act, None)
        return done

    def _later(self, action: Action, effect: Any) -> None:
        """Queues what needs the player; a device lost before its turn makes it void."""
        losses = self._recovery.losses.total

        async def act(subject: Any) -> None:
            if losses == self._recovery.losses.total:
                await action(subject)

        self._player_lane.add(act, effect)

    async def _failed(self, error: DaisyChainError, effect: Any) -> None:
        """A device that is lost is opened again; other failures have their consequence."""
        try:
            if not isinstance(error, DeviceLost) or self.run is None or is_over(self.node):
                raise error
            self._arrival.end()
            await self._recovery.recover(error, self.run)
        except DaisyChainError as final:
            self.failure = final
            self.give(events.Quit(str(final)) if final is not error else consequence(error, effect))
            self._on_effect(effects.Notice("device-failed", str(final)))

    async def _tick(self, _: None) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self._arrival.look(self.run)
            self.give(events.Tick())

    # ------------------------------------------------------------------ attempts

    def _begin(self, effect: effects.BeginAttempt) -> None:
        """Opens the books at once, so that no frame is lost, and queues the computing."""
        attempt = self._attempt = Attempt(effect)
        plan, me = effect.plan, effect.me
        step, epoch = attempt.key
        if attempt.mode is not Exchange.NONE:
            hops = [
                plan.members[plan.next_hop(me, target)] if target != me else ""
                for target in range(len(plan.members))
            ]
            self.links.bulk.route(step, epoch, me, hops)
            flows = awaited_flows(plan, me).items()
            headers = [attempt.header(flow, range_.first, range_.total) for flow, range_ in flows]
            self.links.bulk.expect("", headers)
        self._later(self._compute, effect)

    def _end_attempt(self, key: tuple[int, int]) -> None:
        if self._attempt is not None and self._attempt.key == key:
            self.links.bulk.forget(*key)
            self._attempt = None

    async def _compute(self, effect: effects.BeginAttempt) -> None:
        """The share's slices; the last one's gradients leave while it is being computed."""
        attempt = self._attempt
        if attempt is None or attempt.begun is not effect:
            return
        replica, reducer = self._active()
        share, start = effect.share, self._now_ms()
        numbers, alone = attempt.slices, attempt.mode is Exchange.NONE
        if len(attempt.plan.members) == 1 and self._recovery.replay.is_due(replica):
            self._recovery.replay.start(await replica.state())
        loss = 0
        for number in numbers if alone else numbers[:-1]:
            loss += await replica.add_slice(number, first=number == share.first)
            if self._attempt is not attempt:
                return
        attempt.computed_ms = self._now_ms()
        if alone:
            raw = squares_hash(await replica.own_squares())
        else:
            last, raw = await self._compute_last(attempt, replica, reducer, numbers)
            loss += last
        if self._attempt is attempt:
            tokens = share.micro * replica.model.tokens
            compute_ms = int(attempt.computed_ms - start)
            self.give(events.ComputeDone(*attempt.key, tokens, loss, compute_ms, raw))

    async def _compute_last(
        self, attempt: Attempt, replica: Replica, reducer: Reducer, numbers: range
    ) -> tuple[int, str]:
        """The last slice, bucket by bucket: its loss, and the hash of the whole gradient."""
        async with self._exchange_memory:
            await reducer.begin(attempt.plan, attempt.begun.me)
        loss, bucket = 0, 0
        first = len(numbers) == 1
        async with aclosing(replica.add_last_slice(numbers[-1], first=first)) as gradients:
            async for part, gradient in gradients:
                attempt.computed_ms = self._now_ms()
                loss += part
                async with self._exchange_memory:
                    proposed = await reducer.load(bucket, gradient)
                if self._attempt is not attempt:
                    return 0, ""
                attempt.proposed[bucket] = as_bytes(proposed)
                self.give(events.BucketReady(*attempt.key, bucket))
                bucket += 1
        return loss, await reducer.raw_digest()

    def _send_flow(self, effect: effects.SendFlow) -> None:
        attempt, flow = self._attempt, effect.flow
        if attempt is None or attempt.key != (effect.step, effect.epoch):
            return
        plan, data = attempt.plan, attempt.flow_data(flow)
        header = attempt.header(flow, plan.first(flow), len(data))
        attempt.sent_bytes += framed_bytes(len(data))
        peer = plan.members[plan.next_hop(attempt.begun.me, flow.target)]
        self._transfers.start(peer, header, data)

    async def _hash_reduced(self, effect: effects.HashReduced) -> None:
        attempt, (replica, reducer) = self._attempt, self._active()
        if attempt is None or attempt.key != (effect.step, effect.epoch):
            return
        if attempt.mode is Exchange.NONE:
            squares = await replica.own_squares()
            digest = squares_hash(squares)
        else:
            async with self._exchange_memory:
                digest = await reducer.digest(attempt.mode)
                squares = await reducer.squares(attempt.mode)
        scalars = replica.scalars(effect.step, squares, effect.tokens)
        if self._attempt is attempt:
            counted = attempt.sent_bytes, attempt.received_bytes
            self.give(events.ReducedHashed(*attempt.key, digest, scalars, *counted))

    def _apply_later(self, effect: effects.Apply) -> None:
        later = self._arrival.take_later_step(effect.step) if effect.catch_up else None
        self._later(lambda wanted: self._apply(wanted, later), effect)

    async def _apply(self, effect: effects.Apply, later: Any) -> None:
        """``later`` is the reduced gradient that came if this device catches up."""
        replica, reducer = self._active()
        mode, attempt = effect.exchange, self._attempt
        self._copied = None
        async with self._exchange_memory:
            if effect.catch_up:
                await reducer.store_whole(later, mode)
            if mode is not Exchange.NONE:
                wide = await reducer.wide(mode)
                self._last_reduced = effect.step, mode, None
                if not effect.catch_up:
                    reducer.commit()
        if attempt is not None and not effect.catch_up:
            self._end_attempt(attempt.key)
        if attempt is not None and len(attempt.plan.members) == 1 and not effect.catch_up:
            exchanged = mode is not Exchange.NONE
            reduced = await self._whole_reduced(effect.step) if exchanged else None
            self._recovery.replay.add(ReplayStep(attempt.slices, effect.scalars, mode, reduced))
        else:
            self._recovery.replay.stop()
        if mode is not Exchange.NONE:
            replica.write_sums(wide)
        weights_hash = await replica.apply(effect.scalars)
        self.give(events.Applied(effect.step, weights_hash))

    # ------------------------------------------------------------------ joining

    async def _hash_state(self, effect: effects.HashState) -> None:
        copied = await self._state_at(effect.step)
        copied.digest = copied.digest or await hash_state(copied.contents)
        self.give(events.StateHashed(effect.step, copied.digest))

    async def _keep_state(self, effect: effects.KeepState) -> None:
        self._guests.copy(effect, (await self._state_at(effect.step)).contents)

    async def _state_at(self, step: int) -> Copy:
        """The state, which is that of ``step``; read once however many want it."""
        if self._copied is None or self._copied.step != step:
            self._copied = Copy(step, await self._active()[0].state())
        return self._copied

    async def _serve(self, effect: effects.ServeState) -> None:
        self._guests.serve(effect)

    async def _send_catch_up(self, effect: effects.SendCatchUp) -> None:
        self._guests.send_catch_up(effect, await self._whole_reduced(effect.step))

    async def _whole_reduced(self, wanted: int) -> Any:
        """The last reduced gradient, read when it is first wanted: before the next one is made."""
        if self._last_reduced is None or self._last_reduced[0] != wanted:
            raise ClusterError(f"The reduced gradient of step {wanted} is not here any more.")
        step, mode, data = self._last_reduced
        if data is None:
            async with self._exchange_memory:
                data = await self._active()[1].whole(mode)
            self._last_reduced = step, mode, data
        return data

    async def _fetch_state(self, effect: effects.FetchState) -> None:
        self._copied = None
        await self._arrival.fetch(effect, self.run, self._exchange_memory)

    def _use_run(self, run: Run) -> None:
        """The run that this device made for the room."""
        self.run = run
        self._footers.use(run.replica.source)

    async def _read_leaves(self, effect: effects.ReadLeaves) -> None:
        replica, _ = self._active()
        self.give(events.LeavesRead(effect.step, tuple(await replica.leaves())))

    def _active(self) -> tuple[Replica, Reducer]:
        if self.run is None:
            raise ClusterError("This device has no run yet.")
        return self.run.replica, self.run.reducer
