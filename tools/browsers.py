"""Finding, and where possible installing, the browsers and servers that tests drive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.bootstrap import SetupError, run_step

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FIREFOX_NAMES = ("firefox-esr", "firefox")
DEBIAN_PROGRAM_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
LAVAPIPE_PATTERN = "lvp_icd*.json"


def find_program(variable: str, *names: str) -> Path | None:
    """A program by environment variable, else by its names on the search path."""
    given = os.environ.get(variable)
    if given:
        return Path(given) if Path(given).is_file() else None
    folders = os.pathsep.join([os.environ.get("PATH", ""), *DEBIAN_PROGRAM_FOLDERS])
    found = (shutil.which(name, path=folders) for name in names)
    return next((Path(path) for path in found if path), None)


def find_chromium() -> Path | None:
    """A Chromium: $CHROMIUM, the system's, or Playwright's own."""
    system = find_program("CHROMIUM", *CHROMIUM_NAMES)
    if system or os.environ.get("CHROMIUM"):
        return system
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", Path.home() / ".cache/ms-playwright"))
    return next(iter(sorted(cache.glob("chromium-*/chrome-linux*/chrome"), reverse=True)), None)


def find_firefox() -> Path | None:
    """A Firefox: $FIREFOX or the system's."""
    return find_program("FIREFOX", *FIREFOX_NAMES)


def find_webkit_driver() -> Path | None:
    """WebKitGTK's WebDriver server: $WEBKIT_DRIVER or the system's."""
    return find_program("WEBKIT_DRIVER", "WebKitWebDriver")


def find_minibrowser() -> Path | None:
    """WebKitGTK's test browser, which its WebDriver starts: $MINIBROWSER or the system's."""
    folders = sorted(Path("/usr/lib").glob("*/webkit2gtk-*"), reverse=True)
    return find_program("MINIBROWSER", "MiniBrowser", *(f"{f}/MiniBrowser" for f in folders))


def find_xvfb() -> Path | None:
    """The virtual X server that WebKitGTK needs to run unseen."""
    return find_program("XVFB", "Xvfb")


def find_lavapipe() -> Path | None:
    """Mesa's Vulkan driver for the processor, on which Firefox runs WebGPU."""
    return next(iter(Path("/usr/share/vulkan/icd.d").glob(LAVAPIPE_PATTERN)), None)


def find_mosquitto() -> Path | None:
    """The MQTT broker that stands in for a public relay."""
    return find_program("MOSQUITTO", "mosquitto")


def find_turnserver() -> Path | None:
    """coturn, the TURN server of the relayed-link tests."""
    return find_program("TURNSERVER", "turnserver")


@dataclass(frozen=True)
class Requirement:
    """A program that some tests drive, how to find it, and the Debian packages that bring it."""

    name: str
    find: Callable[[], Path | None]
    debian: tuple[str, ...]


REQUIREMENTS = (
    Requirement("Chromium", find_chromium, ("chromium",)),
    Requirement("Firefox", find_firefox, ("firefox-esr",)),
    Requirement("Mesa's lavapipe", find_lavapipe, ("mesa-vulkan-drivers",)),
    Requirement("WebKitGTK's WebDriver", find_webkit_driver, ("webkit2gtk-driver",)),
    Requirement("Xvfb", find_xvfb, ("xvfb", "xauth")),
    Requirement("mosquitto", find_mosquitto, ("mosquitto",)),
    Requirement("coturn", find_turnserver, ("coturn",)),
)


def missing() -> list[Requirement]:
    """Requirements that this machine does not fulfil."""
    return [requirement for requirement in REQUIREMENTS if requirement.find() is None]


def may_use_apt() -> bool:
    """Whether Debian packages can be installed here: apt-get is there and we are root."""
    return shutil.which("apt-get") is not None and hasattr(os, "geteuid") and os.geteuid() == 0


def install_missing(python: Path) -> None:
    """Install what is missing: by apt when root, else Playwright's own Chromium.

    What cannot be had is named in one sentence; its tests are then skipped (and fail in CI).
    """
    wanted = [package for requirement in missing() for package in requirement.debian]
    if wanted and may_use_apt():
        print(f"Installing Debian packages: {' '.join(wanted)} ...", flush=True)
        apt_install(wanted)
    if find_chromium() is None and not os.environ.get("CHROMIUM"):
        print("Installing Playwright's Chromium ...", flush=True)
        try_step([python, "-m", "playwright", "install", "chromium"])
    for requirement in missing():
        print(
            f"{requirement.name} is missing, so its tests cannot run: install "
            f"{' and '.join(requirement.debian)} (Debian and Ubuntu: apt install).",
            file=sys.stderr,
        )


def apt_install(packages: list[str]) -> None:
    """Install Debian packages without starting the services that they bring."""
    os.environ.update(DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
    try_step(["apt-get", "update", "-q"])
    install = ["apt-get", "install", "-q", "-y", "--no-install-recommends"]
    if not try_step([*install, *packages]):
        for package in packages:  # one that is not to be had must not keep the others away
            try_step([*install, package])


def try_step(command: list[str | Path]) -> bool:
    """Run a step that may fail; its reason goes to the error output."""
    try:
        run_step(command, f"{Path(command[0]).name} could not do its work.")
    except (SetupError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        return False
    return True
