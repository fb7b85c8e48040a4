"""How many micro-batches each device takes, from what it was measured to need for one."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from statistics import median_low

MEASUREMENTS = 5


class Speeds:
    """Milliseconds that each device needs for a micro-batch: the median of its last steps."""

    def __init__(self) -> None:
        self._measured: dict[str, list[int]] = {}

    def observe(self, device: str, micro: int, compute_ms: int) -> None:
        """Takes in that ``device`` computed ``micro`` micro-batches in ``compute_ms``."""
        measured = self._measured.setdefault(device, [])
        measured.append(max(1, compute_ms // micro))
        del measured[:-MEASUREMENTS]

    def forget(self, device: str) -> None:
        """Drops what was measured, for instance when the device starts anew."""
        self._measured.pop(device, None)

    def micro_ms(self, device: str) -> int | None:
        """Time for one micro-batch; None if nothing is known yet."""
        measured = self._measured.get(device)
        return median_low(measured) if measured else None


def share_out(
    devices: Sequence[str],
    micro_ms: Mapping[str, int | None],
    total: int | None,
    most: int,
) -> dict[str, int]:
    """Micro-batches of each device such that all finish together; at least one each.

    With a ``total`` batch: that many in all (or one each, if that is more), every further one to
    the device that would finish it first, never over ``most`` for one device unless all have
    reached it.  Without: the slowest measured device takes one and the others as many as they
    finish in that time, at most ``most``.  A device of unknown speed counts as the slowest.
    """
    known = [ms for device in devices if (ms := micro_ms.get(device)) is not None]
    slowest = max(known, default=1)
    need = {device: micro_ms.get(device) or slowest for device in devices}
    if total is None:
        if len(devices) == 1:
            return {devices[0]: 1}
        return {
            device: 1 if micro_ms.get(device) is None else min(most, slowest // need[device])
            for device in devices
        }
    given = dict.fromkeys(devices, 1)
    queue = [(False, 2 * need[device], device) for device in devices]
    heapq.heapify(queue)
    for _ in range(total - len(devices)):
        _, _, device = queue[0]
        given[device] += 1
        count = given[device]
        heapq.heapreplace(queue, (count >= most, (count + 1) * need[device], device))
    return given
