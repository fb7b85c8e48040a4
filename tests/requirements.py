"""What a test does when a program that it drives is missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


def require(name: str, find: Callable[[], Path | None]) -> Path:
    """The program that ``find`` finds; without it the test is skipped, and fails in CI."""
    path = find()
    if path is not None:
        return path
    reason = f"{name} is missing: python3 build.py test installs it where it may"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
