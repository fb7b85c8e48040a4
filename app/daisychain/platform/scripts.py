"""The site's own ES modules, imported from Python in the page."""

from __future__ import annotations

from typing import Any


async def import_script(path: str) -> Any:
    """The module namespace of a script of the site; ``path`` is relative to the page."""
    import js
    from pyodide.code import run_js

    # In the page and in a Worker alike; a bare import() would resolve against Pyodide's own file.
    address = js.URL.new(path, js.location.href).href
    return await run_js("(address) => import(address)")(address)
