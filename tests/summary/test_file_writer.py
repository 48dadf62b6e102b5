import gc
import multiprocessing
import pickle
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import torch
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import (
    config_pb2,
    event_pb2,
    graph_pb2,
    summary_pb2,
)

import runhooks as rh
from runhooks import events
from runhooks.events.format.proto import bytes_field
from runhooks.events.writing import write_queue
from runhooks.summary import (
    Event,
    FileWriter,
    FileWriterCache,
    JsonLinesWriter,
    SessionLog,
    SessionStatus,
    Summary,
    scalar_value,
)
from runhooks.summary.message import entry as summary_entry
from tests.summary.conftest import Late


def loss(value: float) -> Summary:
    return Summary([scalar_value("loss", value)])


def recorded(folder: Path) -> list[list[event_pb2.Event]]:
    """The events of each file as they are in it."""
    files = [RawEventFileLoader(str(path)).Load() for path in sorted(folder.iterdir())]
    return [[event_pb2.Event.FromString(record) for record in file] for file in files]


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


def test_a_poisoned_array_is_named_at_the_next_call(tmp_path: Path, load) -> None:
    writer = FileWriter(tmp_path)
    writer.add_summary(loss(Late(np.zeros(3))), 5)
    with pytest.raises(ValueError, match="must be a single number") as raised:
        writer.flush()
    summary, event, _ = raised.value.__notes__
    assert "'loss'" in summary
    assert "step 5" in event
    assert repr(str(tmp_path)) in event
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


def test_a_graph_may_be_a_message_or_bytes(tmp_path: Path, load) -> None:
    graph = graph_pb2.GraphDef()
    graph.node.add(name="loss", op="Call")
    before = graph.SerializeToString()
    with FileWriter(tmp_path, graph) as writer:
        graph.node[0].name = "changed"
        writer.add_graph(graph_def=before, global_step=4)
        with pytest.raises(ValueError, match="graph and graph_def"):
            writer.add_graph()
    read = [(e.step, e.graph_def) for e in load() if e.HasField("graph_def")]
    assert read == [(0, before), (4, before)]


def test_records_of_runs(tmp_path: Path) -> None:
    record = config_pb2.RunMetadata()
    record.step_stats.dev_stats.add(device="CPU")
    with FileWriter(tmp_path, session=object()) as writer:
        writer.add_run_metadata(record, "run", 3)
        for wrong in (None, "text"):
            with pytest.raises(TypeError, match="run_metadata must be a message"):
                writer.add_run_metadata(wrong, "run")
        with pytest.raises(ValueError, match="tag must not be empty"):
            writer.add_run_metadata(record, "")
    ((_, run),) = recorded(tmp_path)
    assert (run.step, run.tagged_run_metadata.tag) == (3, "run")
    assert config_pb2.RunMetadata.FromString(run.tagged_run_metadata.run_metadata) == record


def described(tag: str, content: bytes = b"about") -> summary_pb2.Summary:
    value = summary_pb2.Summary.Value(tag=tag, simple_value=1.0)
    value.metadata.plugin_data.plugin_name = "custom"
    value.metadata.plugin_data.content = content
    plain = summary_pb2.Summary.Value(tag="plain", simple_value=2.0)
    return summary_pb2.Summary(value=[plain, value])


def test_the_caller_may_change_a_message_at_once(tmp_path: Path) -> None:
    summary, event = described("a"), event_pb2.Event(step=2, summary=described("b"))
    log = event_pb2.SessionLog(status=SessionStatus.STOP, msg="done")
    with FileWriter(tmp_path) as writer:
        writer.add_summary(summary, 1)
        writer.add_event(event)
        writer.add_session_log(log, 3)
        summary.value[0].tag = event.summary.value[0].tag = log.msg = "changed"
    ((_, first, second, third),) = recorded(tmp_path)
    assert (first.summary, second.summary) == (described("a"), described("b"))
    assert third.session_log.msg == "done"


def test_what_is_dropped_takes_nothing_along(tmp_path: Path) -> None:
    start, graph = SessionLog(SessionStatus.START), rh.Graph()
    held = Held()
    writer = FileWriter(tmp_path, max_queue=3, flush_secs=0.001, on_full="drop")

    def add() -> None:
        writer.add_summary(described("a"), 5)
        writer.graph(graph)
        writer.add_session_log(start, 6)

    writer.scalar("loss", held, 0)
    assert held.read.wait(timeout=60)
    writer.scalars({"one": 1.0}, 0)
    writer.scalars({"two": 2.0}, 0)
    add()
    assert writer.dropped == 3
    held.computed.set()
    for _ in range(3):
        writer.flush()
        add()
    writer.close()
    ((_, _, _, _, *events),) = recorded(tmp_path)
    kinds = [event.WhichOneof("what") for event in events]
    assert kinds == ["summary", "graph_def", "session_log", "summary", "summary"]
    assert events[0].summary == described("a")


def test_after_close_it_refuses_until_it_is_reopened(tmp_path: Path, load) -> None:
    writer = FileWriter(tmp_path, filename_suffix=".mine")
    writer.add_session_log(SessionLog(SessionStatus.START), 1)
    writer.close()
    writer.close()
    assert writer.closed
    with pytest.raises(RuntimeError, match="closed"):
        writer.add_summary(loss(1.0), 1)
    writer.reopen()
    writer.add_session_log(SessionLog(SessionStatus.START), 1)
    writer.close()
    assert starts(load()) == [1, 1]
    assert len(list(tmp_path.glob("*.mine"))) == 2


def test_what_is_no_message_is_refused_at_once(tmp_path: Path) -> None:
    with FileWriter(tmp_path / "one") as writer:
        for summary in (None, "loss", 0.5):
            with pytest.raises(TypeError, match="summary must be"):
                writer.add_summary(summary, 1)
        for event in (b"abc", None, loss(1.0)):
            with pytest.raises(TypeError, match="event must be"):
                writer.add_event(event)
        for log in ("x", None, 3):
            with pytest.raises(TypeError, match="session_log must be"):
                writer.add_session_log(log, 3)
        with pytest.raises(ValueError, match="GraphDef or the bytes of one"):
            writer.add_graph(graph_def=b"abc")
        with pytest.raises(TypeError, match="graph must be a Graph.*Linear"):
            writer.graph(torch.nn.Linear(1, 1))
    for arguments in ({"graph": "x"}, {"graph_def": 3}, {"graph_def": b"abc"}):
        with pytest.raises((TypeError, ValueError), match="graph(_def)? must be"):
            FileWriter(tmp_path / "two", **arguments)
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"filename_suffix": "/a/b"}, ValueError, "filename_suffix"),
        ({"filename_suffix": 3}, TypeError, "filename_suffix"),
        ({"max_queue": 10.5}, TypeError, "max_queue"),
        ({"max_queue": None}, TypeError, "max_queue"),
        ({"max_queue": 0}, ValueError, "max_queue"),
        ({"flush_secs": -1}, ValueError, "flush_secs"),
        ({"on_full": "never"}, ValueError, "on_full"),
    ],
)
def test_arguments_are_checked_before_there_is_a_file(
    tmp_path: Path, arguments: dict, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        FileWriter(tmp_path, **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        b"abc",
        b"\xff\xff",
        Event(1.0, 3).SerializeToString(),
        summary_entry("a", bytes_field(9, b"\0")),  # metadata
    ],
)
def test_bytes_that_are_not_a_summary_are_refused_at_once(
    tmp_path: Path, load, content: bytes
) -> None:
    with FileWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="bytes of a Summary"):
            writer.add_summary(content, 1)
        writer.scalar("loss", 0.5, 2)
    assert scalars(load()) == [(2, "loss", 0.5)]


def test_file_urls_are_paths(tmp_path: Path) -> None:
    for make in (FileWriter, FileWriterCache.get):
        with make(f"file://{tmp_path}/run") as writer:
            writer.scalar("loss", 0.5, 1)
    with JsonLinesWriter(f"file://{tmp_path}/lines") as lines:
        lines.scalar("loss", 0.5, 1)
    assert len(events.read(f"file://{tmp_path}").only.scalars["loss"].steps) == 2
    assert (tmp_path / "lines").read_text().count("\n") == 1


@pytest.mark.parametrize("make", [FileWriter, FileWriterCache.get, JsonLinesWriter])
def test_what_is_no_place_for_a_file(tmp_path: Path, monkeypatch, make) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="nobody://"):
        make("nobody://knows/it")
    with pytest.raises(TypeError, match="logdir|path"):
        make(None)
    with pytest.raises(TypeError, match="logdir|path"):
        make(b"run")
    with pytest.raises(ValueError, match="logdir|path"):
        make("")
    if make is JsonLinesWriter:
        with pytest.raises(ValueError, match="path .*'s3://bucket/run'"):
            make("s3://bucket/run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [FileWriter, FileWriterCache.get, JsonLinesWriter])
def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch, make) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with make("~/runs/1"), make("~nobody here/run"):
        assert (tmp_path / "runs/1").exists()
        assert (tmp_path / "~nobody here/run").exists()


def raw_events(folder: Path) -> list[event_pb2.Event]:
    """What is in the file, without what TensorBoard's loader makes of it, and without the times."""
    (path,) = folder.glob("*.tfevents.*")
    events = [event_pb2.Event.FromString(raw) for raw in RawEventFileLoader(str(path)).Load()]
    for event in events:
        assert event.wall_time > 0
        event.ClearField("wall_time")
        event.ClearField("source_metadata")
    return events


def test_tensorflows_writer_and_ours_make_the_same_events(tmp_path: Path) -> None:
    values = {"loss": 0.1, "e": -np.inf, "τ": np.nan, "zero": 0.0}
    steps = [0, 1, 127, 128, 2**40, -1]
    with FileWriter(tmp_path / "ours") as writer:
        for step in steps:
            for tag, value in values.items():
                writer.scalar(tag, value, step)
            writer.scalars(values, step)
    with tf.Graph().as_default():
        theirs = tf.compat.v1.summary.FileWriter(tmp_path / "theirs")
    for step in steps:
        entries = [
            tf.compat.v1.Summary.Value(tag=tag, simple_value=np.float32(value))
            for tag, value in values.items()
        ]
        for entry in entries:
            theirs.add_summary(tf.compat.v1.Summary(value=[entry]), step)
        theirs.add_summary(tf.compat.v1.Summary(value=entries), step)
    theirs.close()
    ours = raw_events(tmp_path / "ours")
    assert list(map(str, ours)) == list(map(str, raw_events(tmp_path / "theirs")))
    assert len(ours) == 1 + len(steps) * (len(values) + 1)


@pytest.mark.parametrize(
    "make", [lambda: np.zeros(1), lambda: np.array(0.0), lambda: torch.zeros(1)]
)
def test_a_scalar_is_what_it_was_when_it_was_added(tmp_path: Path, load, make) -> None:
    total = make()
    with FileWriter(tmp_path) as writer:
        for step in range(5):
            total += 1
            writer.scalar("total", total, step)
            writer.scalars({"again": total}, step)
        total += 100
    assert [value for _, tag, value in scalars(load()) if tag == "total"] == [1, 2, 3, 4, 5]
    assert [value for _, tag, value in scalars(load()) if tag == "again"] == [1, 2, 3, 4, 5]


def test_a_scalar_between_two_starts_keeps_them_both(tmp_path: Path, load) -> None:
    start = SessionLog(SessionStatus.START)
    with FileWriter(tmp_path) as writer:
        for add in (lambda: writer.scalar("x", 1, 5), lambda: writer.scalars({"x": 1}, 5)):
            writer.add_session_log(start, 5)
            add()
        writer.add_session_log(start, 5)
    assert starts(load()) == [5, 5, 5]


class Held:
    """An array that is computed when the test says so."""

    def __init__(self) -> None:
        self.read, self.computed = threading.Event(), threading.Event()

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        self.read.set()
        assert self.computed.wait(timeout=60)
        return np.array(0.5)


def test_images_cannot_fill_the_memory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(write_queue, "MAX_WAITING_BYTES", 1 << 20)
    held = Held()
    writer = FileWriter(tmp_path, flush_secs=0.001, on_full="drop")
    writer.scalar("loss", held, 0)
    assert held.read.wait(timeout=60)
    for step in range(10):
        writer.image("image", np.zeros((1, 256, 256, 4), np.uint8), step)
    assert writer.dropped == 10 - 4
    held.computed.set()
    writer.close()


def test_a_process_that_it_is_sent_to_writes_a_file_of_its_own(tmp_path: Path, load) -> None:
    with FileWriter(tmp_path) as writer:
        writer.scalar("parent", 0.0, 1)
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=FileWriter.scalar, args=(writer, "child", 1.0, 1))
        process.start()
        process.join()
        assert process.exitcode == 0
        writer.scalar("parent", 0.0, 2)
    assert sorted(scalars(load())) == [(1, "child", 1), (1, "parent", 0), (2, "parent", 0)]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_pickled_writer_starts_anew_where_no_other_has_the_file(tmp_path: Path, load) -> None:
    with FileWriter(tmp_path) as writer:
        writer.add_session_log(SessionLog(SessionStatus.START), 5)
        pickled = pickle.dumps(writer)
        with pickle.loads(pickled) as copy:
            copy.add_session_log(SessionLog(SessionStatus.START), 5)
    assert starts(load()) == [5]
    with pickle.loads(pickled) as copy:
        copy.add_session_log(SessionLog(SessionStatus.START), 5)
    assert starts(load()) == [5, 5]


@pytest.mark.parametrize("view", [np.diagonal, pd.DataFrame])
def test_the_values_of_a_view_are_those_of_the_call(tmp_path: Path, view) -> None:
    weights = np.zeros((3, 3))
    with FileWriter(tmp_path) as writer:
        for step in range(3):
            weights[:] = step
            shown = view(weights)
            writer.histogram("weights", shown, step)
            writer.tensor("values", shown, step)
            weights[:] = 9
    run = events.read(tmp_path).only
    assert [point.value.max for point in run.histograms["weights"]] == [0, 1, 2]
    assert [point.value.max() for point in run.tensors["values"]] == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_a_writer_has_lost_that_nobody_closes_is_logged(tmp_path: Path, caplog) -> None:
    writer = FileWriter(tmp_path / "a")
    writer.pr_curve("curve", [0, 1], [0.2, 1.7], 1)
    del writer
    with FileWriter(tmp_path / "b") as other:
        for step in range(2):  # the background holds what it wrote last
            other.scalar("loss", 0.5, step)
            other.flush()
        gc.collect()
        (record,) = [it for it in caplog.records if "was never closed" in it.message]
    assert "lost 1 item" in record.message
    assert "curve" in record.message
