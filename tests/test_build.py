"""The build: locks without addresses, a wheel that is the same each time, a light site."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.servers import running_app
from tools import bootstrap, browsers
from tools.bootstrap import ROOT, SetupError, ensure_node_modules
from tools.server import make_app
from tools.site import BUDGET_BYTES, build_wheel, replace_folder, weigh, write_python


def test_lock_files_pin_versions_and_hold_no_addresses() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert all("resolved" not in package for package in packages.values())
    assert all("integrity" in package for package in packages.values())
    front_end = json.loads((ROOT / "package.json").read_text())
    wanted = {**front_end["dependencies"], **front_end["devDependencies"]}
    for name, version in wanted.items():
        assert packages[f"node_modules/{name}"]["version"] == version
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in constraints if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+", pin) for pin in pins)
    pinned = {re.split("==", pin)[0].lower().replace("_", "-") for pin in pins}
    development = bootstrap.requirements("dev")
    assert {re.split("[<>=]", requirement)[0].lower() for requirement in development} <= pinned


def test_the_site_takes_few_packages_and_development_has_them_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever only serves the page does not wait for compilers and browsers."""
    site, development = bootstrap.requirements("site"), bootstrap.requirements("dev")
    assert set(site) < set(development)
    assert len(site) == 2
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.touch()
    installed: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "pip_install", lambda _, wanted: installed.append(list(wanted)))
    for group in ("site", "site", "dev", "site"):
        bootstrap.ensure_venv(group)
    assert installed == [site, development]


def test_the_site_is_light(site: Path) -> None:
    weights = weigh(site)
    assert sum(weights.values()) <= BUDGET_BYTES, weights


def test_the_wheel_holds_the_package_and_its_shaders_and_nothing_else(site: Path) -> None:
    (wheel,) = (site / "wheels").iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    assert "daisychain/platform/browser.pyc" in names
    assert not [name for name in names if name.endswith(".py")]
    sources = {path.name for path in (ROOT / "webgpu").glob("*.wgsl")}
    assert {name.rpartition("/")[2] for name in names if name.endswith(".wgsl")} == sources
    assert {name.partition("/")[0] for name in names} == {
        "daisychain",
        "daisychain-0.1.0.dist-info",
    }


def test_the_wheel_is_whole_without_numpy(tmp_path: Path) -> None:
    """What the wheel leaves out, since it needs NumPy, nothing in the wheel imports."""
    wheel = build_wheel(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        sources = {name: archive.read(name) for name in archive.namelist() if name[-3:] == ".py"}
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("daisychain"):
                path = str(node.module).replace(".", "/")
                assert any(n == f"{path}.py" or n.startswith(f"{path}/") for n in sources), name
        assert re.search(rb"^(import|from) numpy\b", source, re.MULTILINE) is None, name


def test_the_compiled_modules_are_reproducible(site: Path, tmp_path: Path) -> None:
    again = write_python(ensure_node_modules().node, tmp_path)
    (wheel,) = (site / "wheels").iterdir()
    assert again.name == wheel.name
    for name in (f"wheels/{wheel.name}", "pyodide/python_stdlib.zip"):
        assert (site / name).read_bytes() == (tmp_path / name).read_bytes()


def test_the_wheel_s_list_of_files_tells_the_truth(site: Path) -> None:
    (wheel,) = (site / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (record,) = [name for name in files if name.endswith("/RECORD")]
    listed = [line.split(",") for line in files[record].decode().splitlines()]
    assert [path for path, _, _ in listed] == list(files)
    for path, checksum, size in listed:
        if path != record:
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[path]).digest())
            assert checksum == f"sha256={digest.decode().rstrip('=')}", path
            assert int(size) == len(files[path])
    tags = wheel.name.removesuffix(".whl").split("-", 3)[3]
    (about,) = [files[name] for name in files if name.endswith("/WHEEL")]
    assert f"Tag: {tags}\n" in about.decode()


def test_lock_and_manifest_tell_the_truth(site: Path) -> None:
    lock = json.loads((site / "pyodide/pyodide-lock.json").read_text())
    package = lock["packages"]["daisychain"]
    wheel = (site / "pyodide" / package["file_name"]).resolve()
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == package["sha256"]
    for file in json.loads((site / "boot.json").read_text())["files"]:
        content = (site / file["path"]).read_bytes()
        assert len(content) == file["bytes"]
        assert hashlib.sha256(content).hexdigest() == file["sha256"]


def test_the_site_names_no_other_host(site: Path) -> None:
    own = [*site.glob("*.html"), *site.glob("assets/*.css"), site / "main.py", *site.glob("js/*")]
    assert len(own) > 4
    loads = re.compile(rb"""(?:src=|href=|url\(|import\s*\(?|from)\s*["']?(?:https?:)?//""")
    assert [path.name for path in own if loads.search(path.read_bytes())] == []


def test_the_server_gives_right_types_and_stays_inside(site: Path) -> None:
    (site.parent / "secret.txt").write_text("outside")
    with running_app(make_app(site)) as url:
        expected = {
            "": "text/html",
            "main.py": "text/x-python",
            "js/boot.js": "text/javascript",
            "pyodide/pyodide.mjs": "text/javascript",
            "pyodide/pyodide.asm.wasm": "application/wasm",
            "pyodide/pyodide-lock.json": "application/json",
        }
        for name, content_type in expected.items():
            with urllib.request.urlopen(url + name) as answer:
                assert answer.headers.get_content_type() == content_type
        for name in ("absent.js", "%2e%2e/secret.txt", "..%2fsecret.txt", "js"):
            with pytest.raises(urllib.error.HTTPError) as refusal:
                urllib.request.urlopen(url + name)
            assert refusal.value.code == 404


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    replace_folder(tmp_path / "new", tmp_path / "old")
    assert [path.name for path in tmp_path.rglob("*")] == ["old", "new"]


def test_a_step_runs_again_only_when_its_inputs_change(tmp_path: Path) -> None:
    stamp, source = tmp_path / "stamp", tmp_path / "source"
    source.write_text("one")
    key = bootstrap.digest(source, "two")
    assert not bootstrap.is_current(stamp, key)
    stamp.write_text(key)
    assert bootstrap.is_current(stamp, bootstrap.digest(source, "two"))
    assert bootstrap.digest("ab", "c") != bootstrap.digest("a", "bc")
    source.write_text("changed")
    assert not bootstrap.is_current(stamp, bootstrap.digest(source, "two"))


def test_a_step_that_fails_says_so_in_one_sentence() -> None:
    with pytest.raises(SetupError, match=r"^Do this\. \(the reason\)$"):
        bootstrap.run_step([sys.executable, "-c", "print('x\\nthe reason'); exit(3)"], "Do this.")
    with pytest.raises(SetupError, match=r"^Do this\. \(.*absent.*\)$"):
        bootstrap.run_step(["/absent/program"], "Do this.")


def test_a_missing_tool_ends_the_build_with_a_sentence_and_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.site", "/absent/node", str(tmp_path / "dist")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "modules could not be compiled" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_programs_are_found_by_variable_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    assert browsers.find_program("CHROMIUM", "chromium") == program
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "absent"))
    assert browsers.find_chromium() is None


def test_an_older_python_is_told_so(tmp_path: Path) -> None:
    pretend = "import sys; sys.version_info = (3, 10); import runpy; runpy.run_path('build.py')"
    done = subprocess.run(
        [sys.executable, "-c", pretend], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "DaisyChain needs Python 3.11 or newer: run build.py with such an interpreter.\n"
    )
