"""No bytes make the reader crash, hang or take memory without a bound.

``tests/soak/test_fuzz_reader.py`` searches for such bytes, led by what the code does with them.
"""

from __future__ import annotations

import runpy
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runhooks.events.format.record import crc32c, frame, masked

CORPUS = sorted((Path(__file__).parents[2] / "data" / "corpus").glob("*.tfevents"))
exercise = runpy.run_path(str(Path(__file__).with_name("exercise.py")))["exercise"]

# What it may take however short a file is: a block, its rows, the tables of the checks.
MOST_BYTES = 64 << 20

positions = st.integers(0, 1 << 16)
edits = st.lists(
    st.one_of(
        st.tuples(st.just("put"), positions, st.binary(max_size=12)),
        st.tuples(st.just("cut"), positions, st.integers(0, 200)),
        st.tuples(st.just("add"), positions, st.binary(max_size=40) | st.just(bytes(300))),
        st.tuples(st.just("again"), positions, st.integers(0, 300)),
    ),
    min_size=1,
    max_size=5,
)


def edited(content: bytes, changes: list[tuple[str, int, object]]) -> bytes:
    for what, where, how in changes:
        at = where % (len(content) + 1)
        if isinstance(how, bytes):
            content = content[:at] + how + content[at + len(how) * (what == "put") :]
        elif isinstance(how, int):
            rest = content[at:] if what == "again" else content[at + how :]
            content = content[:at] + content[at : at + how] * (what == "again") + rest
    return content


def reframed(content: bytes) -> bytes:
    """The records of ``content`` with checks that are right, so that what is in them is read."""
    records, at = [], 0
    while at + 16 <= len(content):
        length = int.from_bytes(content[at : at + 8], "little") % 100_000
        records.append(frame(content[at + 12 : at + 12 + length]))
        at += length + 16
    return b"".join(records)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_corpus(path: Path) -> None:
    exercise(path.read_bytes())


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(content: bytes) -> None:
    exercise(content)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60) | st.just(b"\x0a"), max_size=8), st.sampled_from([1, 3, 40]))
def test_any_payloads(payloads: list[bytes], times: int) -> None:
    exercise(b"".join(frame(payload) * times for payload in payloads))


@settings(deadline=None)
@given(st.sampled_from(CORPUS), edits, st.booleans())
def test_files_that_are_almost_right(
    path: Path, changes: list[tuple[str, int, object]], checks_hold: bool
) -> None:
    content = edited(path.read_bytes(), changes)
    exercise(reframed(content) if checks_hold else content)


def _header(length: int) -> bytes:
    content = length.to_bytes(8, "little")
    return content + masked(crc32c(content)).to_bytes(4, "little")


@pytest.mark.parametrize(
    "content",
    [
        _header((1 << 64) - 1),
        _header(1 << 31) + bytes(1000),
        bytes(1 << 20),
        _header(100) * 1000,
        # A tensor of 2**40 numbers, of which one is given.
        frame(
            bytes.fromhex(
                "2a1d0a1b0a01744216080112080a0608808080808020120a2504 0000803f".replace(" ", "")
            )
        ),
    ],
    ids=["length of 16 EiB", "length of 2 GiB", "zeros", "headers", "huge tensor"],
)
def test_memory_has_a_bound(content: bytes) -> None:
    tracemalloc.start()
    try:
        exercise(content)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
