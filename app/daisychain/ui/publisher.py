"""``window.daisychain``: what the page tells scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from daisychain import platform


class Publisher:
    """Passes on the state, and each record of the log once or, when it grew, again."""

    def __init__(self) -> None:
        self._published, self._last = 0, ""

    def clear(self) -> None:
        """A new run begins, with an empty log."""
        self._published = 0

    def publish(self, state: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
        for index in range(max(0, self._published - 1), len(records)):
            text = json.dumps(records[index])
            # The last one may have got its held-out loss since.
            if index >= self._published or text != self._last:
                platform.put_record(index, text)
            self._last = text
        self._published = len(records)
        platform.publish_state(json.dumps(state))
