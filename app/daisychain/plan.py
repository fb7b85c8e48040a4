"""Plans: flat lists of kernel calls over named buffers.  A plan is data; a player executes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from daisychain.kernels.catalog import BYTES_PER_ELEMENT, CATALOG, STEP_WORDS, Kind


@dataclass(frozen=True)
class Buffer:
    """A named flat buffer of ``count`` elements that lives in ``storage``.

    Buffers whose lives do not overlap may share a storage; a storage is what a player allocates.
    """

    name: str
    kind: Kind
    count: int
    storage: str

    @property
    def size_bytes(self) -> int:
        return self.count * BYTES_PER_ELEMENT[self.kind]


@dataclass(frozen=True)
class Call:
    """One kernel call: operand buffers by name and parameter words, both in catalogue order."""

    kernel: str
    buffers: tuple[str, ...]
    params: tuple[int, ...]

    def named_params(self) -> dict[str, int]:
        return dict(zip(CATALOG[self.kernel].params, self.params, strict=True))

    def groups(self) -> tuple[int, int, int]:
        return CATALOG[self.kernel].groups(self.named_params())


class Constants(Mapping[str, bytes]):
    """What constant buffers hold, by name; made when it is asked for, since it may take long."""

    def __init__(self, makers: Mapping[str, Callable[[], bytes]]) -> None:
        self._makers = makers

    def __getitem__(self, name: str) -> bytes:
        return self._makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclass(frozen=True)
class Program:
    """Everything a player needs: buffers, constant contents, scalar words and the named plans."""

    buffers: dict[str, Buffer]
    plans: dict[str, tuple[Call, ...]]
    scalar_words: int
    constants: Mapping[str, bytes] = field(default_factory=dict)

    def storages(self) -> dict[str, int]:
        """Storage name -> bytes (the largest buffer that lives in it)."""
        sizes: dict[str, int] = {}
        for buffer in self.buffers.values():
            sizes[buffer.storage] = max(sizes.get(buffer.storage, 0), buffer.size_bytes)
        return sizes

    def kernels(self) -> frozenset[str]:
        """Names of the kernels that its plans call."""
        return frozenset(call.kernel for calls in self.plans.values() for call in calls)

    def memory_bytes(self) -> int:
        """Device memory that a player allocates for the program, besides call parameters."""
        return sum(self.storages().values()) + 4 * self.scalar_words

    def to_json(self) -> str:
        """Canonical text of buffers and plans (constants by hash): printable and hashable."""
        return json.dumps(
            {
                "buffers": [[b.name, b.kind, b.count, b.storage] for b in self.buffers.values()],
                "plans": {
                    name: [[c.kernel, c.buffers, c.params] for c in calls]
                    for name, calls in self.plans.items()
                },
                "scalar_words": self.scalar_words,
                "constants": {
                    name: hashlib.sha256(data).hexdigest() for name, data in self.constants.items()
                },
            },
            separators=(",", ":"),
        )

    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()


class ProgramBuilder:
    """Collects buffers, scalar words and calls, and reuses the storage of released temporaries."""

    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.plans: dict[str, list[Call]] = {}
        self.constants: dict[str, Callable[[], bytes]] = {}
        self.scalar_words = STEP_WORDS
        self._free: dict[int, list[str]] = {}
        self._sizes: dict[str, int] = {}
        self._current: list[Call] = []

    def scalar(self) -> int:
        """A fresh word of ``scalars``; its index."""
        self.scalar_words += 1
        return self.scalar_words - 1

    def scalars(self, count: int) -> int:
        """``count`` consecutive fresh words; the first index."""
        first = self.scalar_words
        self.scalar_words += count
        return first

    def buffer(self, name: str, kind: Kind, count: int) -> str:
        """A buffer with a storage of its own."""
        return self._add(name, kind, count, name)

    def constant(self, name: str, kind: Kind, count: int, make: Callable[[], bytes]) -> str:
        """A buffer whose contents, which ``make`` gives, the player uploads once."""
        self.constants[name] = make
        return self.buffer(name, kind, count)

    def temporary(self, name: str, kind: Kind, count: int) -> str:
        """A buffer that may take the storage of a released one of the same size."""
        size = count * BYTES_PER_ELEMENT[kind]
        free = self._free.get(size)
        storage = free.pop() if free else f"t{len(self._sizes)}"
        self._sizes[storage] = size
        return self._add(name, kind, count, storage)

    def release(self, *names: str) -> None:
        """Gives the storages of temporaries back: later temporaries may overwrite them."""
        for name in names:
            storage = self.buffers[name].storage
            self._free.setdefault(self._sizes[storage], []).append(storage)

    def begin(self, plan: str) -> None:
        """Following calls belong to ``plan``."""
        self._current = self.plans.setdefault(plan, [])

    def call(self, kernel: str, *buffers: str, **params: int) -> None:
        """Adds a call; checks operand kinds and parameter names against the catalogue."""
        self._current.append(self._checked(kernel, buffers, params))

    def call_first(self, plan: str, kernel: str, *buffers: str, **params: int) -> None:
        """Puts a call at the head of a plan, once what it must cover is known."""
        self.plans[plan].insert(0, self._checked(kernel, buffers, params))

    def _checked(self, kernel: str, buffers: tuple[str, ...], params: dict[str, int]) -> Call:
        signature = CATALOG[kernel]
        kinds = tuple(self.buffers[name].kind for name in buffers)
        if kinds != tuple(operand.kind for operand in signature.operands):
            raise ValueError(f"{kernel}: operands {buffers} are of kinds {kinds}")
        if set(params) != set(signature.params):
            odd = sorted(set(params) ^ set(signature.params))
            raise ValueError(f"{kernel}: parameters missing or unknown: {odd}")
        return Call(kernel, buffers, tuple(params[name] for name in signature.params))

    def build(self) -> Program:
        return Program(
            dict(self.buffers),
            {name: tuple(calls) for name, calls in self.plans.items()},
            self.scalar_words,
            Constants(dict(self.constants)),
        )

    def _add(self, name: str, kind: Kind, count: int, storage: str) -> str:
        if name in self.buffers:
            raise ValueError(f"buffer {name} exists already")
        if count <= 0:
            raise ValueError(f"buffer {name} has {count} elements")
        self.buffers[name] = Buffer(name, kind, count, storage)
        return name
