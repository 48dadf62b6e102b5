"""Scalars as bytes, held against the messages of TensorBoard."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto import event_pb2, summary_pb2

from runhooks.events import read_records
from runhooks.events.writing.scalar_records import ScalarRecords, scalars_record

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.booleans())
SCALAR = st.tuples(
    st.one_of(st.sampled_from(["", "loss", "rate", "gamma", "τ/loss"]), TEXT),
    NUMBERS,
    st.one_of(st.integers(0, 300), INT64),
    st.floats(allow_nan=False).filter(bool),
)


def payloads(records: bytes | memoryview) -> list[bytes]:
    with tempfile.TemporaryFile() as file:
        file.write(records)
        file.seek(0)
        found = list(read_records(file, "records"))
        assert file.tell() == len(records)
        return found


def as_float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float64(value).astype(np.float32))


def same(read: float, expected: float) -> bool:
    return read == expected or (math.isnan(read) and math.isnan(expected))


def assert_says(payload: bytes, scalar: Sequence[Any]) -> None:
    tag, value, step, wall_time = scalar
    event = event_pb2.Event.FromString(payload)
    (entry,) = event.summary.value
    assert (entry.tag, event.step, event.wall_time) == (tag, step, wall_time)
    assert entry.WhichOneof("value") == "simple_value"
    assert same(entry.simple_value, as_float32(value))
    if tag:  # not a byte more than they would write, except for an empty tag
        assert event.SerializeToString() == payload


@settings(deadline=None)
@given(st.lists(SCALAR, min_size=1, max_size=60))
def test_many_at_once_are_the_messages_of_tensorboard_in_order(scalars: list[Any]) -> None:
    found = payloads(ScalarRecords().encode(*zip(*scalars, strict=True)))
    assert len(found) == len(scalars)
    for payload, (tag, value, step, wall_time) in zip(found, scalars, strict=True):
        assert_says(payload, (tag, value, step, wall_time))
        assert payloads(scalars_record([tag], [value], step, wall_time)) == [payload]


@settings(deadline=None)
@given(st.dictionaries(TEXT, st.floats(width=32, allow_nan=False)), INT64)
def test_several_scalars_of_a_step_are_one_event(values: dict[str, float], step: int) -> None:
    (payload,) = payloads(scalars_record(tuple(values), tuple(values.values()), step, 1.5))
    entries = [summary_pb2.Summary.Value(tag=tag, simple_value=values[tag]) for tag in values]
    expected = event_pb2.Event(wall_time=1.5, step=step, summary=summary_pb2.Summary(value=entries))
    assert event_pb2.Event.FromString(payload) == expected


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(SCALAR, min_size=1, max_size=5), max_size=8))
def test_batches_do_not_depend_on_those_before(batches: list[list[Any]]) -> None:
    records = ScalarRecords()
    for batch in batches:
        columns = list(zip(*batch, strict=True))
        assert bytes(records.encode(*columns)) == bytes(ScalarRecords().encode(*columns))


def test_more_tags_than_are_kept() -> None:
    records = ScalarRecords()
    for first in range(0, 30_000, 6_000):
        tags = [f"tag {number}" for number in range(first, first + 7_000)]
        encoded = records.encode(tags, [0.5] * 7_000, [7] * 7_000, [1.0] * 7_000)
        assert (
            bytes(encoded[:200])
            == b"".join(scalars_record([tag], [0.5], 7, 1.0) for tag in tags[:5])[:200]
        )
    found = [event_pb2.Event.FromString(payload) for payload in payloads(encoded)]
    assert [event.summary.value[0].tag for event in found] == tags


@pytest.mark.parametrize(
    ("scalar", "error", "message"),
    [
        ((1, 0.5, 1, 0.0), TypeError, "tag .*1"),
        (("loss", "0.5", 1, 0.0), TypeError, "str '0.5'"),
        (("loss", [1.0, 2.0], 1, 0.0), ValueError, r"shape \(2,\)"),
        (("loss", 0.5, 1.5, 0.0), TypeError, "float"),
        (("loss", 0.5, 2**64, 0.0), ValueError, "64 bits"),
        (("\ud800", 0.5, 1, 0.0), UnicodeEncodeError, "surrogates"),
    ],
)
def test_what_is_wrong_is_said(scalar: Any, error: type[Exception], message: str) -> None:
    tag, value, step, wall_time = scalar
    with pytest.raises(error, match=message):
        scalars_record((tag,), (value,), step, wall_time)
    with pytest.raises((TypeError, ValueError, OverflowError, AttributeError)):
        good = ("loss", 0.5, 1, 0.0)
        ScalarRecords().encode(*zip(good, scalar, strict=True))


def test_an_error_names_the_tag() -> None:
    with pytest.raises(TypeError) as raised:
        scalars_record(("loss", "rate"), (0.5, None), 1, 0.0)
    assert raised.value.__notes__ == ["while encoding the scalar 'rate'"]


def test_a_step_may_be_missing_or_an_array() -> None:
    for step, expected in ((None, 0), (np.int32(7), 7), (np.array(7), 7)):
        (payload,) = payloads(scalars_record(["loss"], [0.5], step, 1.0))
        assert event_pb2.Event.FromString(payload).step == expected


def test_a_number_too_large_for_float32_is_infinite() -> None:
    rounded_up = 3.4028235677973366e38
    values = [1e39, -1e39, rounded_up, 3.4028235e38]
    found = payloads(ScalarRecords().encode(["x"] * 4, values, [1] * 4, [0.0] * 4))
    read = [event_pb2.Event.FromString(payload).summary.value[0].simple_value for payload in found]
    assert read[:3] == [math.inf, -math.inf, math.inf]
    assert math.isfinite(read[3])
