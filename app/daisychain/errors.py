"""The one exception family of the project.

Every error that can reach a person carries three sentences' worth of facts: what happened, what it
means and what to do.  ``str(error)`` is the text the page shows.
"""

from __future__ import annotations


class DaisyChainError(Exception):
    """Base of all errors a person may read.

    ``what`` happened, what it ``means`` and what to ``do``; the last two may be empty.
    Raise with ``from cause`` so that the cause is kept.
    """

    def __init__(self, what: str, means: str = "", do: str = "") -> None:
        super().__init__(" ".join(part for part in (what, means, do) if part))
        self.what, self.means, self.do = what, means, do


class SettingsError(DaisyChainError):
    """A setting is unknown, absurd or does not fit another one."""


class DeviceError(DaisyChainError):
    """No usable compute device, limits too small, or the device was lost."""


class DeviceLost(DeviceError):
    """The device went away in mid-run; a fresh one may be opened."""


class AdmissionError(DeviceError):
    """A kernel differs from the verified units and was refused."""


class DataError(DaisyChainError):
    """A corpus, tokenizer or checkpoint file is missing, damaged or of the wrong kind."""


class ClusterError(DaisyChainError):
    """A room cannot go on: signalling, links, roster or the sync guard."""


class ProgramError(DaisyChainError):
    """A mistake in the program itself, shown by any other exception; raise it from that one."""

    def __init__(self, mistake: BaseException) -> None:
        super().__init__(
            f"The program has stumbled: {type(mistake).__name__}: {mistake}",
            "This is a fault of DaisyChain, not of your device; the run cannot go on here.",
            "Try again, or reload the page. The details help whoever mends it.",
        )
