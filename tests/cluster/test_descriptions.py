"""Packing of session descriptions: short, lossless, and closed to damaged or hostile text."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.cluster.descriptions import (
    Candidate,
    Description,
    PairingError,
    candidate_line,
    candidates_text,
    description_of,
    pack,
    parse_candidate,
    sdp_of,
    unpack,
    unpack_candidates,
)

CHROMIUM_OFFER = """v=0\r
o=- 4611731400430051336 2 IN IP4 127.0.0.1\r
s=-\r
t=0 0\r
a=group:BUNDLE 0\r
a=extmap-allow-mixed\r
a=msid-semantic: WMS\r
m=application 53421 UDP/DTLS/SCTP webrtc-datachannel\r
c=IN IP4 192.168.1.7\r
a=candidate:1 1 udp 2113937151 0b7c3e1a-5c0f-4e0e-9a57-0d7f6f6f0a11.local 53421 typ host\r
a=candidate:2 1 udp 2113939711 fd00::17 40123 typ host generation 0 network-cost 999\r
a=candidate:3 1 tcp 1518280447 192.168.1.7 9 typ host tcptype active generation 0\r
a=ice-ufrag:Ab+/\r
a=ice-pwd:0123456789abcdefghijklmn\r
a=ice-options:trickle\r
a=fingerprint:sha-256 {}\r
a=setup:actpass\r
a=mid:0\r
a=sctp-port:5000\r
a=max-message-size:262144\r
""".format(":".join(["AB"] * 32))

ice_text = st.text("ABCxyz019+/", min_size=22, max_size=40)
addresses = st.one_of(
    st.ip_addresses().map(str), st.uuids().map(lambda value: f"{uuid.UUID(str(value))}.local")
)
candidates = st.builds(
    Candidate,
    st.sampled_from(["host", "srflx", "prflx", "relay"]),
    addresses,
    st.integers(1, 65535),
)
descriptions = st.builds(
    Description,
    st.sampled_from(["actpass", "active", "passive"]),
    st.text("ABCxyz019+/", min_size=4, max_size=16),
    ice_text,
    st.binary(min_size=32, max_size=32),
    st.lists(candidates, max_size=8).map(tuple),
)


def test_browser_offer_is_read() -> None:
    description = description_of(CHROMIUM_OFFER)
    assert (description.role, description.ufrag) == ("actpass", "Ab+/")
    assert description.fingerprint == b"\xab" * 32
    assert description.candidates == (
        Candidate("host", "0b7c3e1a-5c0f-4e0e-9a57-0d7f6f6f0a11.local", 53421),
        Candidate("host", "fd00::17", 40123),
    )


def test_usual_texts_are_short() -> None:
    description = description_of(CHROMIUM_OFFER)
    name = Candidate("host", "0b7c3e1a-5c0f-4e0e-9a57-0d7f6f6f0a11.local", 53421)
    four = Candidate("host", "192.168.1.7", 1)
    assert len(pack(description.with_candidates((four, description.candidates[1])))) <= 112
    assert len(pack(description.with_candidates((name, name)))) <= 130


@given(descriptions)
@settings(deadline=None)
def test_round_trip(description: Description) -> None:
    text = pack(description)
    assert unpack(text) == description
    assert unpack(f" {text[:20]}\n{text[20:]} ") == description
    assert description_of(sdp_of(description)) == description
    assert unpack_candidates(candidates_text(description.candidates)) == description.candidates


@given(candidates, st.integers(0, 20))
@settings(deadline=None)
def test_candidate_lines(candidate: Candidate, place: int) -> None:
    assert parse_candidate(candidate_line(candidate, place)) == candidate
    assert parse_candidate("a=" + candidate_line(candidate, place)) == candidate


@pytest.mark.parametrize(
    "line",
    [
        "",
        "candidate:1 2 udp 1 1.2.3.4 5 typ host",
        "candidate:1 1 tcp 1 1.2.3.4 9 typ host tcptype active",
        "candidate:1 1 udp 1 example.org 5 typ host",
        "candidate:1 1 udp 1 1.2.3.4 0 typ host",
        "candidate:1 1 udp 1 1.2.3.4 70000 typ host",
        "candidate:1 1 udp 1 1.2.3.4 5 typ odd",
    ],
)
def test_unusable_candidates_are_left_out(line: str) -> None:
    assert parse_candidate(line) is None


@given(descriptions, st.data())
@settings(deadline=None)
def test_cut_text_is_refused_with_a_sentence(description: Description, data: st.DataObject) -> None:
    text = pack(description.with_candidates(()))
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(PairingError, match="pairing text"):
        unpack(text[:cut])


@given(st.one_of(st.text(max_size=300), st.text("ABCDabcd0189-_", max_size=300)))
@settings(max_examples=500, deadline=None)
def test_any_text_is_a_description_or_a_sentence(text: str) -> None:
    for reader in (unpack, unpack_candidates):
        with contextlib.suppress(PairingError):
            reader(text)


def test_rebuilt_sdp_holds_nothing_but_checked_fields() -> None:
    hostile = description_of(CHROMIUM_OFFER)
    text = pack(hostile)
    assert "\r\n" not in text
    lines = sdp_of(unpack(text)).splitlines()
    assert all(line[1] == "=" for line in lines)
    assert sum(line.startswith("a=candidate") for line in lines) == 2
