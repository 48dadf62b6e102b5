"""Several writers as one: a fault of one is nobody else's."""

from __future__ import annotations

import pytest

from runhooks import summary
from runhooks.summary import FileWriter, MemoryWriter, MultiWriter
from runhooks.testing import read_events


class Broken(summary.Writer):
    """Fails in whatever it is asked to do."""

    closed = False

    def add_summary(self, summary, global_step=None):
        raise OSError("no space is left for a summary")

    def add_session_log(self, session_log, global_step=None):
        raise OSError("no space is left for a log")

    def flush(self):
        raise OSError("not flushed")

    def close(self):
        raise OSError("not closed")


def values(writer):
    return [(point.tag, point.step, point.value) for point in writer.points]


class Own:
    """A writer of a user's, with the one method that it has to have."""

    def __init__(self):
        self.points = []

    def add_summary(self, summary, global_step=None):
        self.points += [(it.tag, global_step, it.data) for it in summary]


def test_each_writer_gets_all(tmp_path):
    memory, own = MemoryWriter(), Own()
    with MultiWriter([FileWriter(tmp_path), memory, own]) as writer:
        writer.scalar("loss", 0.5, 1)
        writer.scalars({"loss": 0.25, "accuracy": 1.0}, 2)
    expected = [("loss", 1, 0.5), ("loss", 2, 0.25), ("accuracy", 2, 1.0)]
    assert [(it.tag, it.step, it.value) for it in read_events(tmp_path)] == expected
    assert values(memory) == own.points == expected


@pytest.mark.parametrize("place", [0, 2])
def test_a_fault_of_one_does_not_keep_the_others_from_writing(place):
    writers = [MemoryWriter(), MemoryWriter()]
    multi = MultiWriter([*writers[:place], Broken(), *writers[place:]])
    with pytest.raises(OSError, match="for a summary"):
        multi.scalar("loss", 0.5, 1)
    with pytest.raises(OSError, match="for a log"):
        multi.add_session_log(summary.SessionLog(summary.SessionStatus.START), 2)
    with pytest.raises(OSError, match="not flushed"):
        multi.flush()
    with pytest.raises(OSError, match="not closed"):
        multi.close()
    for writer in writers:
        assert writer.closed
        assert values(writer) == [("loss", 1, 0.5)]


def test_it_is_closed_when_all_are():
    writers = [MemoryWriter(), MemoryWriter()]
    multi = MultiWriter(writers)
    writers[0].close()
    assert not multi.closed
    multi.close()
    assert multi.closed


def test_what_cannot_be_written_with_is_refused():
    with pytest.raises(TypeError, match="must have add_summary"):
        MultiWriter(["runs/a"])
    memory = MemoryWriter()
    for writers in (memory, "runs/a", None):
        with pytest.raises(TypeError, match="writers"):
            MultiWriter(writers)
    for writers in ([], [memory, memory]):
        with pytest.raises(ValueError, match="writers"):
            MultiWriter(writers)
