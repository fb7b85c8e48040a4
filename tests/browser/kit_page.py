"""An inference kit's page, opened from the disk and asked for a text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

TOKENS = 40


def written_by_kit(prompt: str, **fields: str) -> str:
    """JavaScript that lets the kit write; null until it has, then JSON.

    Greedily and TOKENS tokens unless ``fields`` say otherwise, by their ids in the page.
    """
    wishes = {"prompt": prompt, "temperature": "0", "limit": str(TOKENS), "stop": "", **fields}
    return f"""(() => {{
  const root = document.documentElement;
  const field = (id) => document.getElementById(id);
  if (root.dataset.state === "error") return JSON.stringify(field("said").textContent);
  if (root.dataset.state !== "ready") return null;
  if (!root.dataset.asked) {{
    if (field("write").hidden) return null; // still at another text: nobody could click
    root.dataset.asked = "yes";
    root.dataset.checked = field("said").textContent;
    for (const [id, text] of Object.entries({json.dumps(wishes)})) field(id).value = text;
    field("write").click();
    return null;
  }}
  if (field("write").hidden) return null;
  delete root.dataset.asked;
  return JSON.stringify({{
    tokens: [...document.querySelectorAll("[data-token]")].map((s) => Number(s.dataset.token)),
    text: field("text").textContent,
    checked: root.dataset.checked,
    player: field("player").value,
    requests: performance.getEntriesByType("resource").map((entry) => entry.name),
  }});
}})()"""


def written(page: Page, prompt: str, **fields: str) -> dict[str, Any]:
    """What the kit writes in Chromium; Playwright's own waiting is against the kit's policy."""
    while not (answer := page.evaluate(written_by_kit(prompt, **fields))):
        page.wait_for_timeout(20)
    found: dict[str, Any] = json.loads(answer)
    return found


@contextmanager
def open_offline(chromium: Browser, url: str, before: str = "") -> Iterator[Page]:
    """A page without a network and, at the end, without a fault; ``before`` runs before its own."""
    context = chromium.new_context(offline=True)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    page.add_init_script(before)
    page.goto(url)
    yield page
    context.close()
    assert faults == []
