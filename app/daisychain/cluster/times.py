"""Every duration of the cluster in one place; tests override what they need.

Logic runs on an injected clock in whole milliseconds, so nothing here sleeps or reads a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median_low

MOST_BACKLOG_STEPS = 64


@dataclass(frozen=True)
class Times:
    """Durations in milliseconds, plain factors and counts.

    The defaults come from measurements of browsers: a silent loss shows as ICE ``disconnected``
    after 5 to 7 s, an open page that closes shows within 0.03 s, hidden tabs run timers once a
    second.
    """

    beat_ms: int = 1_000
    """Between two heartbeats to every linked peer."""
    suspect_ms: int = 6_000
    """Silence after which a peer that did not announce to be busy counts as gone."""
    busy_limit_ms: int = 60_000
    """The longest silence that a peer may announce for itself."""
    deadline_floor_ms: int = 8_000
    """A step is given up no sooner than this after its proposal."""
    deadline_medians: int = 3
    """... and no sooner than this many median steps."""
    first_deadline_ms: int = 30_000
    """Deadline of a step while nothing is measured yet or a newcomer takes part."""
    first_step_hold_ms: int = 5_000
    """So long a founder's first step waits for devices that are coming in: they make the state of
    step 0 themselves, but have to load that of any later one.  Not above ``join_retry_ms``."""
    median_window: int = 15
    """How many past steps the median looks at."""
    election_ms: int = 2_000
    """How long a candidate waits for answers, and the stagger between would-be candidates."""
    rejoin_ms: int = 3_000
    """Idle time after which a member that the leader passes over asks to rejoin."""
    join_retry_ms: int = 5_000
    """Between two requests of a joiner that hears nothing."""
    return_ms: int = 15_000
    """A device that stepped aside by itself comes back after this, and after twice as long each
    time that it soon does so again..."""
    longest_return_ms: int = 480_000
    """... but after this at the latest."""
    transfer_stall_ms: int = 10_000
    """A state transfer that shows no progress for this long has failed."""
    loading_limit_ms: int = 600_000
    """A joiner that says that it is loading is believed for this long after its last step."""
    hold_ms: int = 60_000
    """The room waits this long in all for one joiner that falls behind..."""
    slow_link_bytes_per_ms: int = 500
    """... or as long as a state takes over a link of this speed, if that is more."""
    halt_wait_ms: int = 5_000
    """How long the search for the drifted tensor range waits for an answer."""
    ice_restart_ms: int = 3_000
    """Links: ICE restart after this long in ``disconnected``."""
    drop_ms: int = 30_000
    """Links: a link that is down for this long is closed for good."""
    step_retries: int = 1
    """Deadlines of one step that pass before the missing members are left out."""
    guard_retries: int = 2
    """Disagreements on the reduced gradient of one step before somebody is left out."""
    backlog_steps: int = 8
    """The room waits for a joiner that loads and is this many steps behind its snapshot..."""
    backlog_bytes: int = 64 << 20
    """... or as many as have so many bytes of reduced gradients, if that is more and the room..."""
    link_bytes_per_ms: int = 2_500
    """... makes no more than this: then the joiner's link brings them in as fast."""

    def backlog(self, step_bytes: int, step_ms: Iterable[int]) -> int:
        """Steps that a joiner may be behind, by a step's reduced gradient and by its durations."""
        usual = self._median(step_ms)
        if usual is None or step_bytes > self.link_bytes_per_ms * usual:
            return self.backlog_steps
        return self.longest_backlog(step_bytes)

    def longest_backlog(self, step_bytes: int) -> int:
        """The most that ``backlog`` gives, however slow the room is."""
        steps = min(MOST_BACKLOG_STEPS, self.backlog_bytes // max(1, step_bytes))
        return max(self.backlog_steps, steps)

    def longest_hold_ms(self, state_bytes: int) -> int:
        """How long a room waits for one joiner in all."""
        return max(self.hold_ms, state_bytes // self.slow_link_bytes_per_ms)

    def step_deadline_ms(self, step_ms: Iterable[int]) -> int:
        """Deadline of a step after its proposal, from the durations of the last steps."""
        usual = self._median(step_ms)
        if usual is None:
            return max(self.deadline_floor_ms, self.first_deadline_ms)
        return max(self.deadline_floor_ms, self.deadline_medians * usual)

    def _median(self, step_ms: Iterable[int]) -> int | None:
        recent = list(step_ms)[-self.median_window :]
        return median_low(recent) if recent else None
