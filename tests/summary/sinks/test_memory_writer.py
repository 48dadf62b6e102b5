"""Summaries as values: every kind, of any writer, read in the background."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.plugins.histogram import summary_v2 as tensorboard_histogram

from runhooks import events, summary
from runhooks.summary import MemoryWriter, Summary, histogram_value
from runhooks.testing import FakeClock
from tests.summary.conftest import Late

START = summary.SessionLog(summary.SessionStatus.START)


@pytest.fixture
def writer():
    with MemoryWriter() as writer:
        yield writer


def only(writer):
    [point] = writer.points
    return point


def test_a_point_says_when_and_what(writer):
    with FakeClock(wall_start=1_700_000_000.0):
        writer.scalar("loss", 0.1, 3)
    assert writer.points == [summary.SummaryPoint("loss", "scalar", 3, 1_700_000_000.0, 0.1)]


def test_scalars_keep_their_precision(writer):
    """However they come: on the wire they would be float32."""
    writer.scalar("direct", 0.1, 1)
    writer.scalars({"several": 0.1}, 1)
    writer.add_summary(Summary([summary.scalar_value("summary", 0.1)]), 1)
    assert [point.value for point in writer.points] == [0.1, 0.1, 0.1]


def test_a_summary_of_another_library(writer):
    message = tensorboard_histogram.histogram_pb("spread", np.arange(10.0), buckets=5)
    writer.add_summary(message, 1)
    writer.add_summary(message.SerializeToString(), 2)
    for step, point in enumerate(writer.points, 1):
        assert (point.kind, point.step) == ("histogram", step)
        assert point.value.counts.tolist() == [2, 2, 2, 2, 2]


def test_a_session_that_starts_again_purges(writer):
    for step in (1, 2, 3):
        writer.scalar("loss", step, step)
    writer.add_session_log(START, 2)
    writer.scalar("loss", 20.0, 2)
    writer.add_session_log(SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path="a"), 2)
    assert [(point.step, point.value) for point in writer.points] == [(1, 1.0), (2, 20.0)]


def test_columns(writer):
    with FakeClock(wall_start=50.0) as clock:
        for step in (1, 2):
            writer.scalar("loss", 0.5 * step, step)
            writer.text("note", "hello", step)
            clock.advance(10)
    columns = writer.columns("loss")
    assert isinstance(columns, events.Scalars)
    assert [column.dtype for column in columns] == [np.int64, np.float64, np.float64]
    assert [column.tolist() for column in columns] == [[1, 2], [0.5, 1.0], [50.0, 60.0]]
    with pytest.raises(KeyError, match=r"'note'.*'loss'"):
        writer.columns("note")


class Pending:
    """An array that a device still computes."""

    def __init__(self):
        self.done = threading.Event()

    def __array__(self, dtype=None, copy=None):
        assert self.done.wait(60), "nobody has finished it"
        return np.array(3.0)


@pytest.mark.parametrize("kind", ["scalar", "histogram"])
def test_an_array_is_waited_for_in_the_background(writer, kind):
    pending = Pending()
    getattr(writer, kind)("loss", pending, 1)  # does not wait: nobody could finish it
    pending.done.set()
    assert only(writer).kind == kind


@pytest.mark.parametrize(
    "bad", [Late(object()), Late(np.zeros(2)), Late(1j)], ids=["object", "array", "complex"]
)
def test_what_is_no_number_is_raised_and_the_others_are_kept(writer, bad):
    writer.scalar("before", 1.0, 1)
    writer.scalar("bad", bad, 2)
    writer.scalar("after", 2.0, 3)
    with pytest.raises((TypeError, ValueError)) as failure:
        writer.flush()
    assert "while reading the scalar 'bad' of step 2" in failure.value.__notes__
    assert [point.tag for point in writer.points] == ["before", "after"]


def test_a_summary_that_cannot_be_read_is_raised_and_the_others_are_kept(writer):
    writer.add_summary(Summary([histogram_value("weights", Late("text"))]), 4)
    writer.scalar("after", 2.0, 5)
    with pytest.raises(TypeError, match="weights") as failure:
        writer.flush()
    assert any("a summary of step 4" in note for note in failure.value.__notes__)
    assert only(writer).tag == "after"


def test_a_closed_writer_refuses_until_it_is_reopened():
    writer = MemoryWriter()
    writer.scalar("loss", 1.0, 1)
    writer.close()
    writer.close()
    assert writer.closed
    with pytest.raises(RuntimeError, match="closed"):
        writer.scalar("loss", 2.0, 2)
    writer.reopen()
    writer.scalar("loss", 3.0, 3)
    assert [point.value for point in writer.points] == [1.0, 3.0]


def test_it_says_why_it_is_not_pickled(writer):
    with pytest.raises(TypeError, match="JsonLinesWriter"):
        pickle.dumps(writer)
