import numpy as np
import pytest
from tensorboard.compat.proto import event_pb2

from runhooks.events import Event, SessionLog, SessionStatus


class Lazy:
    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers' name)
        return b"\x0a\x03\x0a\x01a"


def test_every_field_is_protobufs() -> None:
    event = Event(
        wall_time=12.5,
        step=-7,
        summary=Lazy(),
    )
    read = event_pb2.Event.FromString(event.SerializeToString())
    assert (read.wall_time, read.step, read.summary.value[0].tag) == (12.5, -7, "a")

    event = Event(1.0, 3, session_log=SessionLog(SessionStatus.CHECKPOINT, "a/b", "saved"))
    log = event_pb2.Event.FromString(event.SerializeToString()).session_log
    assert (log.status, log.checkpoint_path, log.msg) == (3, "a/b", "saved")

    event = Event(1.0, 1 << 40, graph_def=b"graph")
    read = event_pb2.Event.FromString(event.SerializeToString())
    assert (read.step, read.graph_def) == (1 << 40, b"graph")

    metadata = event_pb2.TaggedRunMetadata(tag="step 3", run_metadata=b"times")
    event = Event(1.0, tagged_run_metadata=metadata)
    read = event_pb2.Event.FromString(event.SerializeToString())
    assert read.tagged_run_metadata == metadata


@pytest.mark.parametrize("step", [np.int64(300), np.int32(-7), np.uint8(200)])
def test_a_step_may_be_of_numpy(step: np.integer) -> None:
    assert Event.FromString(Event(1.0, step).SerializeToString()).step == step


@pytest.mark.parametrize(
    "event",
    [
        Event(0.0),
        Event(1.5, 9, summary=b"abc"),
        Event(1.5, -9, session_log=b""),
        Event(1.5, graph_def=b"g"),
        Event(1.5, tagged_run_metadata=b"t"),
        Event(1.5, file_version="brain.Event:2"),
    ],
)
def test_an_event_reads_back(event: Event) -> None:
    assert Event.FromString(event.SerializeToString()) == event


def test_the_statuses_are_protobufs() -> None:
    assert dict(event_pb2.SessionLog.SessionStatus.items()) == {
        status.name: status.value for status in SessionStatus
    }


def test_what_is_no_event_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="4 or 8 bytes"):
        Event.FromString(b"\x0a\x00")
