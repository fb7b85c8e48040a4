"""``python3 -m daisychain``: use checkpoints outside of the browser."""

from __future__ import annotations

import sys

from daisychain.cli import main

if __name__ == "__main__":
    sys.exit(main())
