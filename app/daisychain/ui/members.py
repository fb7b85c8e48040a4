"""The table of the room's devices: what each is, does, contributes, and how it is linked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daisychain.platform.dom import Dom, Node
from daisychain.ui import formats, stages
from daisychain.ui.keyed import Keyed

Member = Mapping[str, Any]

COLUMNS = (
    ("micro_batches", "Micro", "Micro-batches of the last step"),
    ("tokens", "Tokens", "Tokens of the last step"),
    ("compute_ms", "Compute ms", "Milliseconds of computing"),
    ("exchange_ms", "Exchange ms", "Milliseconds of the exchange"),
    ("bytes", "Bytes", "Sent and received in the last step"),
    ("rate", "MB/s", "Bytes by the time of the exchange"),
    ("link", "Link", "How this device reaches it, and the round trip"),
    ("hash", "Hash", "First digits of the weights' hash"),
)


def cells(member: Member) -> dict[str, str]:
    """A device's figures as texts; devices that have not trained yet have none."""
    trained = bool(member.get("micro_batches"))
    exchange_ms, traffic = float(member.get("exchange_ms") or 0), float(member.get("bytes") or 0)
    rate = traffic / exchange_ms / 1000.0 if exchange_ms and traffic else None
    return {
        "micro_batches": formats.whole(member["micro_batches"]) if trained else formats.MISSING,
        "tokens": formats.whole(member.get("tokens")) if trained else formats.MISSING,
        "compute_ms": formats.milliseconds(member.get("compute_ms") if trained else None),
        "exchange_ms": formats.milliseconds(exchange_ms or None),
        "bytes": formats.size(traffic or None),
        "rate": formats.rate(rate),
        "link": link(member),
        "hash": formats.short_hash(member.get("hash") or None),
    }


def link(member: Member) -> str:
    """direct, 12 ms"""
    way, rtt_ms = str(member.get("link") or ""), member.get("rtt_ms")
    if member.get("me") or not way:
        return formats.MISSING
    return way if rtt_ms is None else f"{way}, {rtt_ms:.0f} ms"


def facts(member: Member, host: str) -> str:
    """this device, host, training, Chrome 156 on Android"""
    state, kind = str(member.get("state") or ""), str(member.get("kind") or "")
    hosts = member.get("id") == host
    told = (
        "this device" if member.get("me") else "",
        "host" if hosts else "leads" if member.get("leader") else "",
        stages.DOING.get(state, state),
        "" if str(member.get("name")).startswith(kind) else kind,
    )
    return ", ".join(part for part in told if part)


def odd_ones(members: Sequence[Member]) -> set[str]:
    """Ids of the devices whose weights differ from most others' at the newest step."""
    newest = max((int(m.get("step") or 0) for m in members if m.get("hash")), default=0)
    there = {m["id"]: m["hash"] for m in members if m.get("hash") and m.get("step") == newest}
    most = Counter(there.values()).most_common(1)
    return {device for device, hash_ in there.items() if hash_ != most[0][0]} if most else set()


class Row:
    """One device."""

    def __init__(self, dom: Dom, remove: Callable[[], object]) -> None:
        self._remove, self._sure = remove, False
        self._name, self._facts = dom.element("b"), dom.element("small")
        self._cells = {key: dom.element("td", data_label=head) for key, head, _ in COLUMNS}
        self._button = dom.element("button", "Remove", type="button", class_="quiet")
        self._button.on("click", lambda _event: self._press())
        self._button.on("blur", lambda _event: self._ask(False))
        self._last = dom.element("td", self._button, class_="remove")
        self.root = dom.element(
            "tr",
            dom.element("th", self._name, self._facts, scope="row"),
            *self._cells.values(),
            self._last,
        )

    def draw(self, member: Member, host: str, removable: bool, odd: bool) -> None:
        self._name.text(str(member.get("name") or "A device"))
        self._facts.text(facts(member, host))
        for key, text in cells(member).items():
            wrong = odd and key == "hash"
            kind = "odd" if wrong else "none" if text == formats.MISSING else None
            self._cells[key].text(text)
            self._cells[key].attribute("class", kind)
        self._button.show(removable)
        self._button.attribute("aria-label", f"Remove {member.get('name')}" if removable else None)

    def _press(self) -> None:
        if self._sure:
            self._remove()
        self._ask(not self._sure)

    def _ask(self, sure: bool) -> None:
        self._sure = sure
        self._button.text("Remove for good?" if sure else "Remove")


class Members:
    """All devices, and the name of this one; ``remove(id)`` and ``rename(name)`` do as they say."""

    def __init__(
        self, dom: Dom, remove: Callable[[str], object], rename: Callable[[str], object]
    ) -> None:
        heads = (dom.element("th", head, scope="col", title=title) for _, head, title in COLUMNS)
        self._body = dom.element("tbody")
        self._rows: Keyed[Row] = Keyed(self._body, lambda device: Row(dom, lambda: remove(device)))
        self._count = dom.element("span", class_="note")
        self._name = dom.element("input", type="text", name="own-name", autocomplete="off")
        self._name.attribute("maxlength", "40")
        self._name.on("change", lambda _event: rename(self._name.value.strip()))
        self.root = dom.element(
            "section",
            dom.element("div", dom.element("h2", "Devices"), self._count, class_="heading"),
            dom.element(
                "table",
                dom.element(
                    "thead",
                    dom.element("tr", dom.element("th", "Device", scope="col"), *heads, _gap(dom)),
                ),
                self._body,
            ),
            dom.element("label", dom.element("span", "This device is called"), self._name),
            class_="members",
            hidden=True,
        )

    def draw(self, members: Sequence[Member], host: str, removable: bool) -> None:
        """``removable``: whether this device may remove others."""
        rows = self._rows.draw([str(member["id"]) for member in members])
        odd = odd_ones(members)
        for member in members:
            device = str(member["id"])
            rows[device].draw(member, host, removable and not member.get("me"), device in odd)
        self._count.text("1 device" if len(members) == 1 else f"{len(members)} devices")
        self.root.show(bool(members))

    def call(self, name: str) -> None:
        """Shows this device's name."""
        self._name.enter(name)


def _gap(dom: Dom) -> Node:
    return dom.element("th", dom.element("span", "Remove", class_="unseen"), scope="col")
