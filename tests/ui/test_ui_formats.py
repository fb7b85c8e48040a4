"""Numbers as the page shows them."""

from __future__ import annotations

import pytest

from daisychain.ui import formats


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (formats.whole(1_047_311), "1,047,311"),
        (formats.loss(5.42801), "5.4280"),
        (formats.rate(8.44), "8.4"),
        (formats.rate(812.3), "812"),
        (formats.rate(12_411.2), "12,411"),
        (formats.rate(1_250_000), "1.25 M"),
        (formats.learning_rate(3e-3), "3.0e-3"),
        (formats.learning_rate(6.04e-4), "6.0e-4"),
        (formats.milliseconds(18.24), "18.2"),
        (formats.milliseconds(99.97), "100"),
        (formats.milliseconds(1240.4), "1,240"),
        (formats.count(812), "812"),
        (formats.count(84_100), "84.1 K"),
        (formats.count(1_164_000), "1.16 M"),
        (formats.count(33_800_000_000), "33.8 G"),
        (formats.size(512), "512 B"),
        (formats.size(96_400_000), "96.4 MB"),
        (formats.size(1_250_000_000), "1.25 GB"),
        (formats.duration(0.2), "1 s"),
        (formats.duration(59.4), "59 s"),
        (formats.duration(725), "12 min"),
        (formats.duration(11_100), "3 h 5 min"),
        (formats.short_hash("0123456789abcdef"), "01234567"),
    ],
)
def test_numbers(shown: str, expected: str) -> None:
    assert shown == expected


def test_what_is_not_known_yet() -> None:
    shows = (formats.whole, formats.loss, formats.rate, formats.learning_rate, formats.count)
    for show in (*shows, formats.milliseconds, formats.size):
        assert show(None) == formats.MISSING
    assert formats.short_hash(None) == formats.MISSING
