"""When replicas differ: everybody stops, and the device and the tensor range are named.

All exchange the nodes of their hash trees, level by level, along the first path on which they
differ.  Each device sees the same answers and so comes to the same verdict; nobody leads.
"""

from __future__ import annotations

from daisychain.cluster import attempt as steps
from daisychain.cluster.effects import Halted, Mode, ReadLeaves
from daisychain.cluster.events import LeavesRead
from daisychain.cluster.fields import TREE_FANOUT
from daisychain.cluster.hashtree import RANGE_BYTES, HashTree, first_difference, minority
from daisychain.cluster.state import Core, Halting
from daisychain.cluster.vote_messages import Drift, Stop, Tree

BYTES_PER_WEIGHT = 4


def drifted(core: Core, culprit: str, step: int, weights_hash: str) -> None:
    """The weights of ``culprit`` at ``step`` are not this device's: stop everybody."""
    at = core.committed
    if at is None or core.halting is not None:
        return
    members = set(core.roster)
    if core.attempt is not None:
        members.update(core.attempt.roster)
    search = _begin(core, step, members)
    search.claims[culprit] = weights_hash
    message = Drift(step, core.hashes.get(step, weights_hash))
    core.broadcast(tuple(sorted(members - {core.me})), message)


def on_drift(core: Core, source: str, message: Drift) -> None:
    """Another device found replicas to differ."""
    at = core.committed
    if at is None or source not in core.roster:
        core.dropped["drift from outside"] += 1
        return
    if core.halting is None:
        if message.step != at.step or core.mode in (Mode.LEFT, Mode.JOINING):
            core.dropped["drift out of step"] += 1
            return
        drifted(core, source, message.step, message.weights_hash)
    if core.halting is not None and core.halting.step == message.step:
        core.halting.claims.setdefault(source, message.weights_hash)


def _begin(core: Core, step: int, members: set[str]) -> Halting:
    steps.abort(core)
    core.lead = core.election = core.joining = core.held = None
    alive = frozenset(member for member in members if core.present(member))
    core.halting = Halting(step, core.now + core.times.halt_wait_ms, alive | {core.me})
    if step in core.hashes:
        core.halting.claims[core.me] = core.hashes[step]
    core.become(Mode.HALTED)
    core.do(ReadLeaves(step))
    return core.halting


def leaves_read(core: Core, event: LeavesRead) -> None:
    """The leaf hashes of this device's weights are here: start comparing."""
    search = core.halting
    if search is None or search.step != event.step or search.tree is not None or search.finished:
        return
    search.tree = HashTree(event.leaves)
    search.level = search.tree.top
    _publish(core, search)
    _compare(core, search)


def _publish(core: Core, search: Halting) -> None:
    assert search.tree is not None
    hashes = search.tree.children(search.level, search.index)
    search.trees.setdefault(core.me, {})[search.level, search.index] = hashes
    search.until_ms = core.now + core.times.halt_wait_ms
    message = Tree(
        search.step, core.hashes.get(search.step, "0" * 32), search.level, search.index, hashes
    )
    core.broadcast(tuple(sorted(search.participants - {core.me})), message)


def on_tree(core: Core, source: str, message: Tree) -> None:
    """Nodes of another device's tree."""
    search = core.halting
    if search is None or search.step != message.step or source not in search.participants:
        core.dropped["tree out of step"] += 1
        return
    search.claims[source] = message.weights_hash
    nodes = search.trees.setdefault(source, {})
    if len(nodes) < 16:
        nodes.setdefault((message.level, message.index), message.hashes)
    _compare(core, search)


def _compare(core: Core, search: Halting) -> None:
    while search.tree is not None and not search.finished:
        answers = _answers(search)
        if len(answers) < len(search.participants):
            return
        _descend(core, search, answers)


def _answers(search: Halting) -> dict[str, tuple[str, ...]]:
    key = (search.level, search.index)
    return {who: nodes[key] for who, nodes in search.trees.items() if key in nodes}


def _descend(core: Core, search: Halting, answers: dict[str, tuple[str, ...]]) -> None:
    child = first_difference(answers)
    if child is None:
        _conclude(core, search, minority(search.claims), None)
        return
    below = search.index * TREE_FANOUT + child
    if search.level == 0:
        claims = {who: row[child] if child < len(row) else "" for who, row in answers.items()}
        _conclude(core, search, minority(claims), below)
    else:
        search.level, search.index = search.level - 1, below
        _publish(core, search)


def tick(core: Core) -> None:
    """Stop waiting for devices that do not answer."""
    search = core.halting
    if search is None or search.finished or core.now < search.until_ms:
        return
    answers = _answers(search) if search.tree is not None else {}
    if len(answers) > 1:
        _descend(core, search, answers)
        if not search.finished:
            _compare(core, search)
    else:
        _conclude(core, search, minority(search.claims), None)


def _conclude(core: Core, search: Halting, devices: tuple[str, ...], leaf: int | None) -> None:
    search.finished = True
    first = 0 if leaf is None else leaf * RANGE_BYTES
    size = 0 if leaf is None else RANGE_BYTES
    names: tuple[str, ...] = ()
    if size and core.layout is not None:
        names = core.layout.names(first // BYTES_PER_WEIGHT, size // BYTES_PER_WEIGHT)
    place = f" in {', '.join(names)}" if names else ""
    text = (
        f"The weights of {' and '.join(devices) or 'some device'} differ{place} after step "
        f"{search.step}. Training has stopped everywhere; no wrong step was mixed in."
    )
    core.do(Halted(search.step, text, devices, first, size, names))


def stop(core: Core, message: Stop) -> None:
    """The leader stops training for another reason than drifted weights."""
    steps.abort(core)
    core.lead = core.election = core.joining = core.held = None
    if core.halting is None:
        core.halting = Halting(message.step, core.now, frozenset(), finished=True)
    core.become(Mode.HALTED)
    text = (
        f"The reduced gradients of {' and '.join(message.devices)} keep differing. Training has "
        f"stopped after step {message.step}."
    )
    core.do(Halted(message.step, text, message.devices, 0, 0, ()))
