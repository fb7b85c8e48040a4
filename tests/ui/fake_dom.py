"""A document in plain Python with as much of the DOM as ``daisychain.platform.dom`` uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

from daisychain.platform.dom import Dom


class Element:
    """An element; text is a child of type ``str``."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.attributes: dict[str, str] = {}
        self.content: list[Element | str] = []
        self.parent: Element | None = None
        self.listeners: dict[str, list[Callable[[Any], object]]] = {}
        self.value = ""
        self.checked = False
        self.focused = False
        self.open = False
        self.files: Any = Files()

    # --- the DOM's face

    @property
    def children(self) -> list[Element]:
        return [part for part in self.content if isinstance(part, Element)]

    @property
    def childElementCount(self) -> int:
        return len(self.children)

    @property
    def firstElementChild(self) -> Element:
        return self.children[0]

    @property
    def lastElementChild(self) -> Element:
        return self.children[-1]

    @property
    def textContent(self) -> str:
        parts = (p if isinstance(p, str) else p.textContent for p in self.content)
        return "".join(parts)

    @textContent.setter
    def textContent(self, text: str) -> None:
        self.content = [text]

    def setAttribute(self, name: str, text: str) -> None:
        self.attributes[name] = text

    def removeAttribute(self, name: str) -> None:
        self.attributes.pop(name, None)

    def addEventListener(self, event: str, handler: Callable[[Any], object]) -> None:
        self.listeners.setdefault(event, []).append(handler)

    def append(self, *content: Element | str) -> None:
        for part in content:
            self._place(part, len(self.content))

    def replaceChildren(self, *content: Element | str) -> None:
        self.content = []
        self.append(*content)

    def after(self, sibling: Element) -> None:
        assert self.parent is not None
        if sibling.parent is not None:
            sibling.remove()
        self.parent._place(sibling, self.parent.content.index(self) + 1)

    def remove(self) -> None:
        assert self.parent is not None
        self.parent.content.remove(self)
        self.parent = None

    def insertAdjacentHTML(self, where: str, markup: str) -> None:
        assert where == "afterbegin"
        for index, part in enumerate(parse(markup)):
            self._place(part, index)

    def focus(self) -> None:
        self.focused = True

    def _place(self, part: Element | str, index: int) -> None:
        if isinstance(part, Element):
            part.parent = self
        self.content.insert(index, part)

    # --- for tests

    def fire(self, event: str, **details: object) -> None:
        """As the browser does when something happens."""
        given = SimpleNamespace(preventDefault=lambda: None, **details)
        for handler in self.listeners.get(event, []):
            handler(given)

    def all(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            yield from child.all()

    @property
    def visible(self) -> bool:
        shown = "hidden" not in self.attributes
        return shown and (self.parent is None or self.parent.visible)

    def text_shown(self) -> str:
        """The text outside hidden elements."""
        if "hidden" in self.attributes:
            return ""
        return " ".join(p if isinstance(p, str) else p.text_shown() for p in self.content)


class Files:
    """The list of a file picker or of a drop."""

    def __init__(self, *files: Any) -> None:
        self._files = files
        self.length = len(files)

    def item(self, index: int) -> Any:
        return self._files[index]


def parse(markup: str) -> list[Element]:
    """Elements of well-formed markup."""
    top = Element("top")
    place = [top]

    class Builder(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            element = Element(tag)
            element.attributes = {name: text or "" for name, text in attrs}
            place[-1].append(element)
            place.append(element)

        def handle_endtag(self, tag: str) -> None:
            assert place.pop().tag == tag

        def handle_data(self, data: str) -> None:
            place[-1].append(data)

    Builder().feed(markup)
    assert place == [top]
    return top.children


class Document:
    """A page with the places that index.html has."""

    def __init__(self) -> None:
        self.title = "DaisyChain"
        self.body = Element("body")
        self.places = {name: Element("div") for name in ("app", "controls", "phase")}
        self.body.append(*self.places.values())

    def createElement(self, tag: str) -> Element:
        return Element(tag)

    def getElementById(self, identifier: str) -> Element | None:
        return self.places.get(identifier)

    def createRange(self) -> Range:
        return Range()


class Range:
    """Between two sibling elements."""

    def setStartBefore(self, element: Element) -> None:
        self.first = element

    def setEndAfter(self, element: Element) -> None:
        self.last = element

    def deleteContents(self) -> None:
        assert self.first.parent is not None
        content = self.first.parent.content
        del content[content.index(self.first) : content.index(self.last) + 1]


class Clipboard:
    """Takes texts, or refuses them."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.allowed = True

    async def writeText(self, text: str) -> None:
        if not self.allowed:
            raise PermissionError
        self.text = text


class Window:
    """A window with a document and a clipboard."""

    def __init__(self) -> None:
        self.document = Document()
        self.navigator = SimpleNamespace(clipboard=Clipboard())

    def dom(self) -> Dom:
        return Dom(self, lambda handler: handler)

    def button(self, text: str) -> Element:
        """The one visible button with this text."""
        found = [
            element
            for element in self.document.body.all()
            if element.tag == "button" and element.textContent == text and element.visible
        ]
        assert len(found) == 1, f"{len(found)} visible buttons {text!r}"
        return found[0]

    def field(self, name: str) -> Element:
        """The field with this name."""
        (found,) = (
            element
            for element in self.document.body.all()
            if element.tag == "input"
            and element.attributes.get("name") == name
            and element.attributes["type"] == "text"
        )
        return found

    def enter(self, name: str, text: str) -> None:
        """Types into a field and leaves it."""
        field = self.field(name)
        field.value = text
        field.fire("change")

    def named(self, name: str) -> Element:
        """The one visible element with this accessible name of its own."""
        found = [
            e
            for e in self.document.body.all()
            if e.attributes.get("aria-label") == name and e.visible
        ]
        assert len(found) == 1, f"{len(found)} visible elements called {name!r}"
        return found[0]

    def shown(self) -> str:
        return " ".join(self.document.body.text_shown().split())

    def rows(self) -> list[Element]:
        """The rows of the log."""
        (log,) = (e for e in self.document.body.all() if e.attributes.get("class") == "log")
        (body,) = (e for e in log.all() if e.tag == "tbody")
        return body.children
