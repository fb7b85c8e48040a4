"""How numbers read on the page.  ``MISSING`` stands where there is no number yet."""

from __future__ import annotations

MISSING = "\u2013"


def whole(value: float | None) -> str:
    """1,047,311"""
    return MISSING if value is None else f"{value:,.0f}"


def loss(value: float | None) -> str:
    """Nats a token or bits a byte with four digits: 5.4280"""
    return MISSING if value is None else f"{value:.4f}"


def rate(value: float | None) -> str:
    """Tokens a second: 8.4, 812, 12,411, 1.25 M"""
    if value is None:
        return MISSING
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def learning_rate(value: float | None) -> str:
    """3.0e-3"""
    if value is None:
        return MISSING
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def milliseconds(value: float | None) -> str:
    """18.2, and 1,240 from a hundred up"""
    if value is None:
        return MISSING
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}"


def count(value: float | None) -> str:
    """Parameters or tokens: 812, 84.1 K, 1.16 M, 25.3 M"""
    if value is None:
        return MISSING
    for unit, size in (("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if value >= size:
            return f"{_three_digits(value / size)} {unit}"
    return f"{value:.0f}"


def size(value_bytes: float | None) -> str:
    """Bytes in decimal units: 512 B, 96.4 MB, 1.25 GB"""
    if value_bytes is None:
        return MISSING
    for unit, unit_bytes in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if value_bytes >= unit_bytes:
            return f"{_three_digits(value_bytes / unit_bytes)} {unit}"
    return f"{value_bytes:.0f} B"


def duration(value_s: float) -> str:
    """40 s, 12 min, 3 h 5 min"""
    if value_s < 60:
        return f"{max(1, round(value_s))} s"
    minutes = round(value_s / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def short_hash(value: str | None) -> str:
    """The first eight digits of a hash."""
    return MISSING if value is None else value[:8]


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
