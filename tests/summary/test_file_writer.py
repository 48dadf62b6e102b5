import threading
from pathlib import Path

import numpy as np
import pytest
from tensorboard.compat.proto import event_pb2, graph_pb2, summary_pb2

from runhooks.summary import Event, FileWriter, SessionLog, SessionStatus, Summary, scalar_value
from runhooks.testing.fake_clock import FakeClock


def loss(value: float) -> Summary:
    return Summary([scalar_value("loss", value)])


def scalars(events: list[event_pb2.Event]) -> list[tuple[int, str, float]]:
    return [
        (event.step, value.tag, value.tensor.float_val[0])
        for event in events
        for value in event.summary.value
    ]


def starts(events: list[event_pb2.Event]) -> list[int]:
    return [event.step for event in events if event.session_log.status == SessionStatus.START]


def test_a_summary_may_be_ours_protobufs_or_bytes(tmp_path: Path, load) -> None:
    value = summary_pb2.Summary.Value(tag="theirs", simple_value=2.0)
    with FileWriter(tmp_path) as writer:
        writer.add_summary(loss(1.0), 1)
        writer.add_summary(summary_pb2.Summary(value=[value]), np.int64(2))
        writer.add_summary(loss(3.0).SerializeToString(), global_step=3)
        writer.add_summary(loss(4.0))
    assert scalars(load()) == [(1, "loss", 1), (2, "theirs", 2), (3, "loss", 3), (0, "loss", 4)]


def test_tensorboard_sees_the_very_curve(tmp_path: Path, accumulate) -> None:
    rng = np.random.default_rng(0)
    curve = {tag: rng.normal(size=500).astype(np.float32) for tag in ("loss", "rate")}
    with FakeClock(wall_start=1_700_000_000.25) as clock, FileWriter(tmp_path) as writer:
        for step in range(500):
            writer.add_summary(Summary(scalar_value(tag, curve[tag][step]) for tag in curve), step)
            clock.advance(1)
    accumulator = accumulate()
    for tag, values in curve.items():
        points = accumulator.Scalars(tag)
        assert [point.step for point in points] == list(range(500))
        assert [point.value for point in points] == values.tolist()
        assert [point.wall_time for point in points[:2]] == [1_700_000_000.25, 1_700_000_001.25]


def test_arrays_are_read_in_the_background(tmp_path: Path, load) -> None:
    readers = []

    class Lazy:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            readers.append(threading.current_thread().name)
            return np.array(0.5)

    with FileWriter(tmp_path) as writer:
        writer.add_summary(loss(Lazy()), 1)
    assert readers == ["runhooks-events"]
    assert scalars(load()) == [(1, "loss", 0.5)]


def test_a_poisoned_array_is_named_at_the_next_call(tmp_path: Path, load) -> None:
    writer = FileWriter(tmp_path)
    writer.add_summary(loss(np.zeros(3)), 5)
    with pytest.raises(ValueError, match="scalar summary 'loss' must be a single") as raised:
        writer.flush()
    assert raised.value.__notes__ == [
        "while encoding the summary 'loss'",
        f"while encoding an event of step 5 for the event file in {str(tmp_path)!r}; "
        "the event is lost",
    ]
    writer.add_summary(loss(1.0), 6)
    writer.close()
    assert scalars(load()) == [(6, "loss", 1.0)]


def test_events_and_session_logs_may_be_ours_or_protobufs(tmp_path: Path, load) -> None:
    with FileWriter(tmp_path) as writer:
        writer.add_event(Event(1.5, 1, session_log=SessionLog(SessionStatus.STOP)))
        writer.add_event(event_pb2.Event(wall_time=2.5, step=2, graph_def=b""))
        writer.add_session_log(SessionLog(SessionStatus.CHECKPOINT, "model.ckpt-3"), 3)
        writer.add_session_log(event_pb2.SessionLog(status=2, msg="done"), 4)
    _, ours, theirs, *rest = load()
    logs = [event for event in rest if event.HasField("session_log")]
    assert (ours.wall_time, ours.step, ours.session_log.status) == (1.5, 1, SessionStatus.STOP)
    assert (theirs.wall_time, theirs.step) == (2.5, 2)
    assert [(e.step, e.session_log.checkpoint_path, e.session_log.msg) for e in logs] == [
        (3, "model.ckpt-3", ""),
        (4, "", "done"),
    ]


def test_a_start_is_not_repeated(tmp_path: Path, load) -> None:
    start = SessionLog(SessionStatus.START)
    with FileWriter(tmp_path) as writer:
        writer.add_session_log(start, 5)
        writer.add_session_log(event_pb2.SessionLog(status=1), 5)
        writer.add_session_log(start, 6)
        writer.add_summary(loss(1.0), 6)
        writer.add_session_log(start, 6)
        writer.add_session_log(SessionLog(SessionStatus.STOP), 6)
        writer.add_session_log(start, 6)
    assert starts(load()) == [5, 6, 6, 6]


def test_a_start_makes_tensorboard_drop_what_comes_again(tmp_path: Path, accumulate) -> None:
    for first, value in ((1, 1.0), (3, 2.0)):
        with FileWriter(tmp_path) as writer:
            writer.add_session_log(SessionLog(SessionStatus.START), first)
            for step in range(first, first + 4):
                writer.add_summary(loss(value), step)
    points = [(point.step, point.value) for point in accumulate().Scalars("loss")]
    assert points == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2)]


def test_a_graph_may_be_a_message_or_bytes(tmp_path: Path, load) -> None:
    graph = graph_pb2.GraphDef()
    graph.node.add(name="loss", op="Call")
    with FileWriter(tmp_path, graph_def=graph) as writer:
        writer.add_graph(graph_def=graph.SerializeToString(), global_step=4)
    read = [(e.step, e.graph_def) for e in load() if e.HasField("graph_def")]
    assert read == [(0, graph.SerializeToString()), (4, graph.SerializeToString())]


def test_a_graph_is_given_once(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="exactly one of graph and graph_def must be given"):
            writer.add_graph()


def test_after_close_it_refuses_until_it_is_reopened(tmp_path: Path, load) -> None:
    writer = FileWriter(tmp_path, filename_suffix=".mine")
    writer.add_session_log(SessionLog(SessionStatus.START), 1)
    writer.close()
    writer.close()
    assert writer.closed
    with pytest.raises(RuntimeError, match=r"is closed: reopen\(\) it before adding"):
        writer.add_summary(loss(1.0), 1)
    writer.reopen()
    writer.add_session_log(SessionLog(SessionStatus.START), 1)
    writer.close()
    assert starts(load()) == [1, 1]
    assert len(list(tmp_path.glob("*.mine"))) == 2


def test_what_it_cannot_do_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"session must be None, got 'session': .* FileWriterCache"
    ):
        FileWriter(tmp_path, session="session")
    with pytest.raises(ValueError, match="max_queue must be above 0, got 0"):
        FileWriter(tmp_path, max_queue=0)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="logdir must be a directory that can be written"):
        FileWriter(tmp_path / "file" / "run")


@pytest.mark.parametrize("summary", [None, "loss", 0.5])
def test_what_is_no_summary_is_refused_at_once(tmp_path: Path, summary: object) -> None:
    with FileWriter(tmp_path) as writer:
        with pytest.raises(TypeError, match=f"summary must be a Summary, .* got {summary!r}"):
            writer.add_summary(summary, 1)


def test_two_writers_of_one_second_lose_nothing(tmp_path: Path, load) -> None:
    with FakeClock(), FileWriter(tmp_path) as one, FileWriter(tmp_path) as two:
        for step in range(10):
            (one, two)[step % 2].add_summary(loss(float(step)), step)
    assert len(list(tmp_path.iterdir())) == 2
    assert sorted(step for step, _, _ in scalars(load())) == list(range(10))


def test_it_says_its_directory(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as writer:
        assert writer.get_logdir() == str(tmp_path)
