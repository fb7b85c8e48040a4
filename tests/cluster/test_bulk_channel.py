"""The JavaScript byte pump speaks ``cluster.wire`` and survives hostile frames (run in Node)."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

from daisychain.cluster.reassembly import Awaited, Reassembler, Verdict
from daisychain.cluster.reduce_plan import PAYLOAD_BYTES, Flow, Kind, framed_bytes
from daisychain.cluster.wire import Frame, decode_frame, encode_header, frame_count

SCRIPT = Path(__file__).with_name("bulk_channel.mjs")
FUZZ_FRAMES = 1_000_000


def node(*arguments: object) -> Any:
    command = ["node", str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_python_frames_are_taken(tmp_path: Path) -> None:
    frames = bytearray()
    sizes = [0, 1, 3, 4, 5, 31, 255, 4096, PAYLOAD_BYTES - 1, PAYLOAD_BYTES]
    for number, size in enumerate(sizes):
        payload = bytes((number * 31 + i * 7) % 256 for i in range(size))
        frame = Frame(Kind.GRADIENT_UP, 2**32 - 1, number, 65_535, 31, 0, 2**31, size, 0)
        data = encode_header(frame, payload) + payload
        frames += len(data).to_bytes(4, "little") + data
    file = tmp_path / "frames"
    file.write_bytes(frames)
    nothing = {"malformed": 0, "unexpected": 0, "duplicate": 0, "overflow": 0}
    assert node("frames", file) == {"done": len(sizes), "dropped": nothing, "left": 0}


def test_no_flipped_bit_gets_through(tmp_path: Path) -> None:
    payload = bytes(range(37))
    frame = Frame(Kind.GRADIENT_DOWN, 3, 2, 1, 0, 1, 64, len(payload), 0)
    data = encode_header(frame, payload) + payload
    file = tmp_path / "frame"
    file.write_bytes(len(data).to_bytes(4, "little") + data)
    bits = 8 * len(data)
    assert node("damage", file) == {"bits": bits, "dropped": bits, "before": 0, "completed": 1}


def test_python_takes_the_pumps_frames() -> None:
    for size in (0, 5, PAYLOAD_BYTES, 3 * PAYLOAD_BYTES + 17):
        answer = node("sent", size)
        frames = [base64.b64decode(frame) for frame in answer["frames"]]
        assert len(frames) == frame_count(size)
        flow = Flow(Kind.STATE, 0, 0, 0)
        books = Reassembler(1, 1, {flow: Awaited(0, size)}, size)
        verdicts = [books.add(frame)[0] for frame in frames]
        assert verdicts[-1] is Verdict.COMPLETE
        assert books.take(flow) == base64.b64decode(answer["payload"])
        assert decode_frame(frames[0])[0].total == size


def test_hostile_frames_are_dropped_and_counted() -> None:
    answer = node("fuzz", FUZZ_FRAMES, 12345)
    assert answer["completed"] == 0
    assert answer["left"] == 3
    assert answer["dropped"] == FUZZ_FRAMES + 5
    assert answer["grown"] < 64 << 20


def test_a_step_of_small_is_sent_a_mebibyte_at_a_time() -> None:
    """Between two devices each sends a byte a parameter; other work gets its turn in between."""
    parameters = 9_050_000
    answer = node("turns", parameters)
    assert answer["largest"] <= 1 << 20
    assert answer["total"] == framed_bytes(parameters)


def test_exponents_do_not_wait_behind_gradients() -> None:
    """Their own channel is empty of all else; without one they are the next frames sent."""
    up, down = Kind.EXPONENTS_UP, Kind.EXPONENTS_DOWN
    assert node("urgent") == {
        "beside": [[up, down], [Kind.GRADIENT_UP] * 3],
        "alone": [[], [down, up, Kind.GRADIENT_UP]],
    }


def test_what_is_given_up_is_neither_sent_nor_passed_on_nor_kept() -> None:
    """A repeated step does not wait behind the one that was given up, nor a state behind another;
    senders take it for sent.  Frames of a state or a plan are counted as they come."""
    gradient = Kind.GRADIENT_UP
    answer = node("given-up")
    assert answer == {
        "sent": [f"{gradient} of 4.1", f"{gradient} of 5.2"],
        "fetched": 2,
        "left": [30, 30, 30, 30],
        "awaited": [gradient],
    }


def test_reordered_and_duplicated_frames_over_three_channels_and_a_forwarder() -> None:
    answer = node("move")
    assert answer["arrived"] == [
        ["b", "a", "bytes"],
        ["b", "a", "empty"],
        ["b", "a", "small"],
        ["c", "b", "bytes"],
    ]
    assert answer["missing"] == [["a", 8]]
    assert answer["afterForget"] == 0
    assert answer["unexpected"] >= 1
    assert answer["duplicate"] >= 1
    assert answer["malformed"] == 0
    assert answer["largest"] <= (1 << 20) + 65_536
    assert answer["lost"] == "link to d closed"
    assert answer["stuck"] <= 16
    assert answer["nobody"] == "no link to z"
