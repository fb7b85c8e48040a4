"""The data plan of a room: listing and footers as bytes that one device reads and all share.

What a plan says decides which rows feed which slice, so a room agrees on its hash.  The bytes come
from another device: size and hash are checked before anything is unpacked, every field after.
Footers of files whose turn comes later travel one by one, as text, without a hash agreed on.
"""

from __future__ import annotations

import binascii
import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from daisychain.data.hub import Listing
from daisychain.data.slices import Footer
from daisychain.data.spec import DatasetSpec
from daisychain.errors import DataError

MAX_PACKED_BYTES = 1 << 20
MAX_PLAN_BYTES = 1 << 22
"""Unpacked: FineWeb-Edu's listing and two footers are 0.1 MB."""

MAX_FOOTER_CHARACTERS = 1 << 18
MAX_FOOTER_BYTES = 1 << 20
"""Of one footer as text and unpacked: that of a file of FineWeb-Edu has 16 KB and 33 KB."""

Shared = Mapping[str, object]
"""What ``StreamSource.shared`` gives."""


@dataclass(frozen=True)
class PackedPlan:
    """A plan on its way; ``digest`` is of the plan itself, 32 hexadecimal digits."""

    digest: str
    packed: bytes


def _plain(record: Shared) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


def _unpacked(packed: bytes, limit_bytes: int) -> bytes:
    """What zlib packed, at most so many bytes.  Raises zlib.error, ValueError."""
    stream = zlib.decompressobj()
    plain = stream.decompress(packed, limit_bytes)
    if not stream.eof:
        raise ValueError("it is cut off or too large")
    return plain


def footer_text(footer: Footer) -> str:
    """A footer as text for control messages; empty if it is too large for them."""
    plain = _plain(footer.to_record())
    text = b64encode(zlib.compress(plain, 9)).decode()
    return text if len(plain) <= MAX_FOOTER_BYTES and len(text) <= MAX_FOOTER_CHARACTERS else ""


def read_footer_text(text: str, path: str, file_bytes: int) -> Footer:
    """Inverse of `footer_text`, for a file of a listing.  Raises DataError."""
    try:
        if len(text) > MAX_FOOTER_CHARACTERS:
            raise ValueError("it is too large")
        record = json.loads(_unpacked(b64decode(text, validate=True), MAX_FOOTER_BYTES))
    except (zlib.error, binascii.Error, ValueError, RecursionError) as cause:
        raise DataError(f"The footer of {path} that a device sent is none ({cause}).") from cause
    return Footer.from_record(record, path, file_bytes)


def pack_plan(shared: Shared) -> PackedPlan:
    """A plan as bytes; none if it is too large to be sent, then each device reads it itself."""
    plain = _plain(shared)
    packed = zlib.compress(plain, 9)
    fits = len(plain) <= MAX_PLAN_BYTES and len(packed) <= MAX_PACKED_BYTES
    return PackedPlan(sha256(plain).hexdigest()[:32], packed if fits else b"")


def unpack_plan(packed: bytes, digest: str = "") -> Shared:
    """Inverse of `pack_plan`; with ``digest`` only the plan that hashes so.  Raises DataError."""
    try:
        if len(packed) > MAX_PACKED_BYTES:
            raise ValueError("it is too large")
        plain = _unpacked(packed, MAX_PLAN_BYTES)
        if digest and sha256(plain).hexdigest()[:32] != digest:
            raise DataError("The data plan that a device sent is not the room's.")
        shared = json.loads(plain)
        if not isinstance(shared, dict):
            raise ValueError("it is no record")
    except (zlib.error, ValueError, RecursionError) as cause:
        raise DataError(f"The data plan that a device sent cannot be read ({cause}).") from cause
    return shared


def read_plan(shared: Shared, wanted: DatasetSpec) -> tuple[Listing, dict[int, Footer], int]:
    """Listing, footers by file and tokens a kilobyte of another device's plan of ``wanted``.

    Raises DataError naming the file and the row group that cannot be.
    """
    listing = Listing.from_record(shared.get("listing"))
    if not listing.files or not _is_choice_of(listing.spec, wanted):
        raise DataError(f"The data plan of the room is not one of {wanted.name}.")
    records, rate = shared.get("footers"), shared.get("tokens_per_kilobyte")
    if not isinstance(records, dict) or type(rate) is not int or not 0 < rate <= 1000:
        raise DataError("The data plan of the room is malformed.")
    files = {str(number): number for number in range(len(listing.files))}
    footers = {}
    for name, record in records.items():
        if name not in files:
            raise DataError("The data plan of the room has a footer of a file that is not listed.")
        file = listing.files[files[name]]
        footers[files[name]] = Footer.from_record(record, file.path, file.bytes)
    return listing, footers, rate


def _is_choice_of(spec: DatasetSpec, wanted: DatasetSpec) -> bool:
    """Whether a listing's dataset is the wanted one, with the usual choices filled in."""
    return (
        (spec.repo, spec.column, spec.folder) == (wanted.repo, wanted.column, wanted.folder)
        and spec.revision in (wanted.revision, "main")
        and wanted.config in ("", "-", spec.config)
        and wanted.split in ("", "-", spec.split)
    )


def difference(told: Shared, own: Shared) -> str:
    """Where a plan that another device told differs from what this device read, in words."""
    if told.get("listing") != own.get("listing"):
        return "the list of files"
    footers, others = _record(told.get("footers")), _record(own.get("footers"))
    paths = [file[0] for file in own["listing"]["files"]]  # type: ignore[index]
    for name in others:
        groups, true = _record(footers.get(name)).get("groups"), others[name]["groups"]
        if not isinstance(groups, list) or len(groups) != len(true):
            return f"the number of row groups of {paths[int(name)]}"
        for number, pair in enumerate(zip(groups, true, strict=True)):
            if pair[0] != pair[1]:
                return f"row group {number} of {paths[int(name)]}"
    return "the tokens a kilobyte" if footers == others else "the footers of the files"


def _record(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
