"""The page's elements, as the user interface wants them: few calls, and none without a change.

A call from Python into the page costs about 2 us and the layout that it causes far more, so a
``Node`` remembers what it wrote and stays silent when the value is the same.  ``Dom.writes`` counts
the writes that did happen; tests hold the page to a number of them a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Handler = Callable[[Any], object]


class Node:
    """One element of the page."""

    def __init__(self, dom: Dom, raw: Any) -> None:
        self.raw = raw
        self._dom = dom
        self._text: str | None = None
        self._attributes: dict[str, str | None] = {}

    def text(self, value: str) -> None:
        """Shows ``value`` as the element's only content; it is never taken for markup."""
        if value != self._text:
            self._text = value
            self.raw.textContent = value
            self._dom.writes += 1

    def attribute(self, name: str, value: str | bool | None) -> None:
        """Sets an attribute; False and None remove it, True makes it empty."""
        text = None if value is None or value is False else "" if value is True else value
        if name in self._attributes and self._attributes[name] == text:
            return
        self._attributes[name] = text
        if text is None:
            self.raw.removeAttribute(name)
        else:
            self.raw.setAttribute(name, text)
        self._dom.writes += 1

    def show(self, visible: bool) -> None:
        self.attribute("hidden", not visible)

    def append(self, *content: Node | str) -> None:
        """Adds elements and texts after the present content."""
        self.raw.append(*(part.raw if isinstance(part, Node) else part for part in content))
        self._dom.writes += 1

    def replace(self, *content: Node | str) -> None:
        """Adds elements and texts in place of the present content."""
        self._text = None
        self.raw.replaceChildren(
            *(part.raw if isinstance(part, Node) else part for part in content)
        )
        self._dom.writes += 1

    def after(self, sibling: Node) -> None:
        """Moves ``sibling`` behind this element."""
        self.raw.after(sibling.raw)
        self._dom.writes += 1

    def prepend_rows(self, markup: str, keep: int) -> None:
        """Puts trusted markup of whole rows first and drops rows beyond ``keep``: two writes.

        Texts from outside must have passed ``html.escape``.
        """
        self.raw.insertAdjacentHTML("afterbegin", markup)
        self._dom.writes += 1
        if self.raw.childElementCount > keep:
            self._dom.delete_from(self.raw, keep)
            self._dom.writes += 1

    def remove(self) -> None:
        """Takes this element out of the page."""
        self.raw.remove()
        self._dom.writes += 1

    def drop_first(self) -> None:
        """Removes the first child element."""
        self.raw.firstElementChild.remove()
        self._dom.writes += 1

    @property
    def value(self) -> str:
        """What a person has entered."""
        return str(self.raw.value)

    def enter(self, value: str) -> None:
        """Puts ``value`` into a field, unless it stands there already."""
        if self.value != value:
            self.raw.value = value
            self._dom.writes += 1

    def check(self, checked: bool) -> None:
        """Selects a radio button or a check box, or clears it."""
        if bool(self.raw.checked) != checked:
            self.raw.checked = checked
            self._dom.writes += 1

    def on(self, event: str, handler: Handler) -> None:
        """Calls ``handler`` with each such event for as long as the page lives."""
        self.raw.addEventListener(event, self._dom.to_proxy(handler))

    def focus(self) -> None:
        self.raw.focus()


class Dom:
    """Makes elements in a document; ``to_proxy`` makes a lasting JavaScript function."""

    def __init__(self, window: Any, to_proxy: Callable[[Handler], Any]) -> None:
        self._window, self._document = window, window.document
        self.to_proxy = to_proxy
        self.writes = 0

    def element(self, tag: str, *content: Node | str, **attributes: str | bool | None) -> Node:
        """A new element; ``aria_label`` becomes ``aria-label`` and ``class_`` ``class``."""
        node = Node(self, self._document.createElement(tag))
        for name, value in attributes.items():
            node.attribute(name.rstrip("_").replace("_", "-"), value)
        if content:
            node.append(*content)
        return node

    def find(self, identifier: str) -> Node:
        """The element of the page with this id, which must be there."""
        raw = self._document.getElementById(identifier)
        if raw is None:
            raise LookupError(f"the page has no element #{identifier}")
        return Node(self, raw)

    def title(self, text: str) -> None:
        """Shows ``text`` as the name of the tab."""
        if self._document.title != text:
            self._document.title = text
            self.writes += 1

    def delete_from(self, raw: Any, first: int) -> None:
        """Deletes the child elements of ``raw`` from number ``first`` on, at one stroke."""
        span = self._document.createRange()
        span.setStartBefore(raw.children[first])
        span.setEndAfter(raw.lastElementChild)
        span.deleteContents()

    async def copy_text(self, text: str) -> bool:
        """Puts ``text`` on the clipboard; False where the browser does not let the page."""
        clipboard = getattr(self._window.navigator, "clipboard", None)
        if clipboard is None:
            return False
        try:
            await clipboard.writeText(text)
        except Exception:  # a JsException, whose class only the browser has
            return False
        return True


def open_dom() -> Dom:
    """The document of this page."""
    import js
    from pyodide.ffi import create_proxy

    return Dom(js, create_proxy)
