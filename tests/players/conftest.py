"""Fixtures of the player tests."""

from webgpu_harness import chromium_device, firefox_device, run_in_chromium, run_in_firefox

__all__ = ["chromium_device", "firefox_device", "run_in_chromium", "run_in_firefox"]
