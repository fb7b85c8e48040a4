"""What both faces share, and that the faces are one interface."""

from __future__ import annotations

import ast
import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain import platform
from daisychain.errors import DataError
from daisychain.platform.common import (
    MAX_PARAMETERS,
    describe_user_agent,
    parse_page_url,
    read_resource,
    safe_file_name,
)
from tools.bootstrap import ROOT

FACES = ROOT / "app/daisychain/platform"


def signatures(face: str) -> dict[str, str]:
    """Public functions and methods of a face, each with its whole signature."""
    found = {}
    for node in ast.parse((FACES / f"{face}.py").read_text()).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                kind = "async def" if isinstance(member, ast.AsyncFunctionDef) else "def"
                result = ast.unparse(member.returns) if member.returns else ""
                found[prefix + member.name] = f"{kind} ({ast.unparse(member.args)}) -> {result}"
    return found


def test_both_faces_are_one_interface() -> None:
    browser, cpython = signatures("browser"), signatures("cpython")
    names = set(re.findall(r"^(\w+) = face\.\1$", (FACES / "__init__.py").read_text(), re.M))
    assert len(names) > 10
    methods = {f"WakeLock.{name}" for name in ("held", "start", "stop")}
    for name in (names - {"WakeLock"}) | methods:
        assert browser[name] == cpython[name], name
    assert set(platform.__all__) >= names


def test_resources_come_from_the_source_tree() -> None:
    shader = next((ROOT / "webgpu").glob("*.wgsl"))
    assert read_resource(f"webgpu/{shader.name}") == shader.read_bytes()
    assert read_resource("errors.py").startswith(b'"""')


@pytest.mark.parametrize(
    "name", ["webgpu/absent.wgsl", "../pyproject.toml", "/etc/passwd", "a//b", "", ".git/config"]
)
def test_a_resource_that_is_not_there_is_a_data_error(name: str) -> None:
    with pytest.raises(DataError):
        read_resource(name)


def test_parameters_of_the_address() -> None:
    parameters = parse_page_url("http://host/a/?preset=nano&steps=20&seed=&preset=tiny#room=A-B")
    assert parameters.query == {"preset": "tiny", "steps": "20", "seed": ""}
    assert parameters.fragment == {"room": "A-B"}


@given(st.text(max_size=300), st.text(max_size=100))
def test_any_address_gives_parameters(query: str, fragment: str) -> None:
    parameters = parse_page_url(f"http://host/?{query}#{fragment}")
    assert len(parameters.query) <= MAX_PARAMETERS


def test_a_link_of_very_many_parameters_is_cut() -> None:
    query = "&".join(f"p{number}=1" for number in range(10_000))
    assert len(parse_page_url(f"http://host/?{query}").query) == MAX_PARAMETERS


@given(st.text(max_size=300))
def test_a_download_gets_a_harmless_name(name: str) -> None:
    safe = safe_file_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,119}", safe)


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (
            "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) "
            "Chrome/126.0.0.0 Mobile Safari/537.36",
            "Chrome 126 on Android",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 "
            "(KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1",
            "Safari 18 on iPhone",
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 "
            "(KHTML, like Gecko) Version/26.0 Safari/605.1.15",
            "Safari 26 on macOS",
        ),
        (
            "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0",
            "Firefox 153 on Linux",
        ),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
            "Chrome/126.0.0.0 Safari/537.36 Edg/126.0.0.0",
            "Edge 126 on Windows",
        ),
        ("", "Browser"),
    ],
)
def test_devices_have_short_names(user_agent: str, name: str) -> None:
    assert describe_user_agent(user_agent) == name


def test_the_clock_goes_on_while_sleeping() -> None:
    before_ms = platform.monotonic_ms()
    asyncio.run(platform.sleep_ms(5))
    assert platform.monotonic_ms() - before_ms >= 4.9
