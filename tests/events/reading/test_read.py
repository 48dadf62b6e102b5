"""Runs, tags and columns; files of other libraries are in ``test_other_writers``."""

from __future__ import annotations

import gc
import pickle
import random
import struct
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2

from runhooks.events import check, frame, read, stream
from runhooks.events.format import proto
from runhooks.summary import FileWriter, SessionLog, SessionStatus

Write = Callable[..., Path]
Scalar = Callable[..., Any]

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
floats32 = st.floats(width=32)
steps = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300)


def points(scalars: Any) -> list[tuple[int, float, float]]:
    return list(zip(*(column.tolist() for column in scalars), strict=True))


def test_columns(tmp_path: Path, write: Write, scalar: Scalar) -> None:
    write(scalar("loss", 0.5, 1, 10.5), scalar("rate", 2, 1), scalar("loss", 0.25, 2, 11.5))
    run = read(tmp_path).only
    assert list(run.scalars) == ["loss", "rate"]
    assert points(run.scalars["loss"]) == [(1, 0.5, 10.5), (2, 0.25, 11.5)]
    assert [column.dtype for column in run.scalars["loss"]] == ["int64", "float64", "float64"]
    assert run.tags["loss"] == ("scalar", 2, "", "", "")


def test_runs_are_named_as_tensorboard_names_them(
    tmp_path: Path, write: Write, scalar: Scalar
) -> None:
    for name in ("b/train", "b/eval", "a", "."):
        write(scalar(name, 1, 1), name=f"{name}/events.out.tfevents.1")
    (tmp_path / "a" / "checkpoint").write_text("no event file")
    write(name="c/events.out.tfevents.1.profile-empty")
    runs = read(tmp_path)
    assert list(runs) == [".", "a", "b/eval", "b/train"]
    assert [list(run.scalars) for run in runs.values()] == [[name] for name in runs]
    assert runs["b/eval"].path == tmp_path / "b" / "eval"
    assert list(read(tmp_path / "b")) == ["eval", "train"]
    with pytest.raises(ValueError, match=r"'\.', 'a', 'b/eval', 'b/train'"):
        _ = runs.only


def test_a_single_file_is_a_run(tmp_path: Path, write: Write, scalar: Scalar) -> None:
    first = write(scalar("x", 1, 1))
    write(scalar("x", 2, 2), name="events.out.tfevents.2")
    run = read(str(first)).only
    assert (run.name, run.path, run.files) == (".", first, [first])
    assert points(run.scalars["x"]) == [(1, 1.0, 1.0)]


def test_the_files_of_a_run_are_one(tmp_path: Path, write: Write, scalar: Scalar) -> None:
    write(scalar("x", 2, 2), name="events.out.tfevents.2")
    write(scalar("x", 1, 1), name="events.out.tfevents.1")
    assert points(read(tmp_path).only.scalars["x"]) == [(1, 1.0, 1.0), (2, 2.0, 2.0)]


def test_a_folder_that_links_to_itself_is_read_once(
    tmp_path: Path, write: Write, scalar: Scalar
) -> None:
    write(scalar("x", 1, 1), name="a/events.out.tfevents.1")
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    assert list(read(tmp_path)) == ["a"]


def test_what_a_link_leads_to_is_read_once_under_its_own_name(
    tmp_path: Path, write: Write, scalar: Scalar
) -> None:
    for name in ("runs/run-1", "runs/run-3/eval", "elsewhere/other"):
        write(scalar("x", 1, 1), name=f"{name}/events.out.tfevents.1")
    (tmp_path / "runs" / "latest").symlink_to("run-3")
    (tmp_path / "runs" / "a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "runs" / "run-1")
    assert list(read(tmp_path / "runs")) == ["a/other", "run-1", "run-3/eval"]
    assert list(read(tmp_path / "runs" / "latest")) == ["eval"]


def test_hyper_parameters_are_read_whatever_is_wanted_and_outlast_a_restart(tmp_path: Path) -> None:
    for lr in (0.1, 0.2):
        with FileWriter(tmp_path) as writer:
            writer.add_session_log(SessionLog(SessionStatus.START), 1)
            writer.scalar("loss", 0.5, 1)
            writer.hparams({"lr": lr, f"of {lr}": True}, {"loss": 0.5}, step=9 if lr == 0.1 else 2)
    found = {"lr": 0.2, "of 0.1": True, "of 0.2": True}
    for options in ({}, {"tags": "loss"}, {"kinds": "scalar"}, {"tags": ["x"], "kinds": ["text"]}):
        run = read(tmp_path, **options).only
        assert run.hparams == found
        assert set(run.to_pandas(hparams=True).columns) >= {f"hparams/{name}" for name in found}
    assert run.scalars == {}
    assert [report.folds for report in check(tmp_path)] == [[], []]


def test_nothing_to_read(tmp_path: Path) -> None:
    runs = read(tmp_path)
    assert dict(runs) == {}
    assert runs.update() == 0
    with pytest.raises(ValueError, match="none"):
        _ = runs.only
    with pytest.raises(FileNotFoundError, match="gone"):
        read(tmp_path / "gone")


def test_an_empty_file_is_an_empty_run(tmp_path: Path, write: Write) -> None:
    write()
    run = read(tmp_path).only
    assert (dict(run.tags), dict(run.scalars), run.damages, run.graph) == ({}, {}, [], None)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, ["eval/loss", "loss", "rate", "w[0]"]),
        ("loss", ["loss"]),
        ("*loss", ["eval/loss", "loss"]),
        (["rate", "eval/*"], ["eval/loss", "rate"]),
        ([], []),
        ("nothing", []),
        ("w[0]", ["w[0]"]),
        (["*[0]", "w[*"], ["w[0]"]),
    ],
)
def test_only_wanted_tags(
    tmp_path: Path, write: Write, scalar: Scalar, wanted: Any, found: list[str]
) -> None:
    for step in range(20):  # enough of them to be read by the column
        write(scalar("loss", 1, step), scalar("rate", 2, step), scalar("eval/loss", 3, step))
        write(scalar("w[0]", 4, step))
    run = read(tmp_path, tags=wanted).only
    assert list(run.tags) == list(run.scalars) == found
    assert all(len(run.scalars[tag].steps) == 20 for tag in found)


def histogram(tag: str) -> Any:
    value = summary_pb2.Summary.Value(tag=tag, histo=summary_pb2.HistogramProto(num=1))
    return event_pb2.Event(summary=summary_pb2.Summary(value=[value]))


def test_only_wanted_kinds(tmp_path: Path, write: Write, scalar: Scalar) -> None:
    image = summary_pb2.Summary.Image(height=1, width=1, encoded_image_string=b"png")
    values = [
        summary_pb2.Summary.Value(tag="picture", image=image),
        summary_pb2.Summary.Value(tag="rate", simple_value=2),
    ]
    write(event_pb2.Event(summary=summary_pb2.Summary(value=values)))
    write(*(scalar("loss", 1, step) for step in range(20)))
    assert list(read(tmp_path, kinds="scalar").only.tags) == ["loss", "rate"]
    assert list(read(tmp_path, kinds=["image", "audio"]).only.tags) == ["picture"]
    assert list(read(tmp_path, kinds="image", tags="rate").only.tags) == []
    with pytest.raises(ValueError, match="kinds .*picture"):
        read(tmp_path, kinds="picture")


@pytest.mark.parametrize("tag_count", [20, 700])
def test_many_scalars(
    tmp_path: Path,
    write: Write,
    scalar: Scalar,
    tensorboard: Callable[[Path], EventAccumulator],
    tag_count: int,
) -> None:
    """In no order, so that records of all lengths follow each other; over several blocks."""
    chance = random.Random(0)
    names = [f"tag {n}" + "." * chance.randrange(30) for n in range(tag_count)]
    write(*(scalar(chance.choice(names), chance.random(), n // 3) for n in range(30_000)))
    run, theirs = read(tmp_path).only, tensorboard(tmp_path)
    assert list(run.scalars) == sorted(theirs.Tags()["scalars"])
    for tag, columns in run.scalars.items():
        assert points(columns) == [(s.step, s.value, s.wall_time) for s in theirs.Scalars(tag)]


def test_several_scalars_in_an_event(tmp_path: Path, write: Write) -> None:
    for step in range(50):
        values = [
            summary_pb2.Summary.Value(tag=tag, simple_value=step + place)
            for place, tag in enumerate(("loss", "rate", "loss"))
        ]
        write(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=values)))
    run = read(tmp_path).only
    assert run.scalars["rate"].values.tolist() == [step + 1 for step in range(50)]
    assert run.scalars["loss"].values.tolist() == [s + p for s in range(50) for p in (0, 2)]
    assert read(tmp_path, tags="rate").only.scalars["rate"].steps.tolist() == list(range(50))


TAGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(str.encode)
TAG = (TAGS | st.sampled_from([b"loss", b"", b"x" * 150])).map(partial(proto.bytes_field, 1))
NUMBER = floats32.map(lambda number: b"\x15" + struct.pack("<f", number))
TENSOR = floats32.map(
    lambda number: summary_pb2.Summary.Value(
        tensor=tensor_pb2.TensorProto(dtype=1, tensor_shape={}, float_val=[number])
    ).SerializeToString()
)
METADATA = st.sampled_from(["scalars", "text", ""]).map(
    lambda plugin: summary_pb2.Summary.Value(
        metadata=summary_pb2.SummaryMetadata(plugin_data={"plugin_name": plugin})
    ).SerializeToString()
)
NODE = st.just(proto.bytes_field(7, b"node"))
IN_ORDER = st.tuples(TAG, NUMBER) | st.tuples(TAG, TENSOR, METADATA)
IN_ANY_ORDER = st.tuples(TAG, NUMBER, TAG, TENSOR, METADATA, NODE).flatmap(st.permutations)
IN_ANY_ORDER |= st.tuples(TAG, NUMBER, METADATA).flatmap(st.permutations)
VALUES = st.lists((IN_ORDER | IN_ANY_ORDER).map(b"".join), max_size=3)
SUMMARY = VALUES.map(
    lambda values: proto.bytes_field(5, b"".join(proto.bytes_field(1, value) for value in values))
)
TIME = st.floats().map(partial(proto.double_field, 1))
STEP = steps.map(lambda step: b"\x10" + proto.varint(step % (1 << 64)))
EVENT = st.tuples(TIME, STEP, SUMMARY) | st.tuples(TIME, STEP, SUMMARY, SUMMARY).flatmap(
    st.permutations
)


@same_folder
@given(st.lists(EVENT.map(b"".join), max_size=4), st.sampled_from([1, 40]))
def test_fields_in_any_order(
    tmp_path: Path, write: Write, payloads: list[bytes], times: int
) -> None:
    """Alone, and among many of the same length; Protocol Buffers say what they mean."""
    expected: dict[str, list[tuple[int, float, float]]] = {}
    for payload in (payload for payload in payloads for _ in range(times)):
        event = event_pb2.Event.FromString(payload)
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                number = value.simple_value
            elif value.metadata.plugin_data.plugin_name == "scalars":
                number = value.tensor.float_val[0]
            else:
                continue
            expected.setdefault(value.tag, []).append((event.step, number, event.wall_time))
    write().write_bytes(b"".join(frame(payload) * times for payload in payloads))
    run = read(tmp_path).only
    assert run.damages == []
    assert list(run.scalars) == sorted(expected)
    for tag, found in run.scalars.items():
        np.testing.assert_array_equal(points(found), expected[tag])


def test_a_run_that_is_dropped_frees_its_columns_at_once(
    tmp_path: Path, write: Write, scalar: Scalar
) -> None:
    write(*(scalar("x", 1, step) for step in range(50)))
    gc.disable()
    try:
        runs = read(tmp_path)
        run = runs.only
        steps = weakref.ref(run.scalars["x"].steps)
        assert (run.tags["x"].points, dict(run.images)) == (50, {})
        del runs, run
        assert steps() is None
    finally:
        gc.enable()


def test_what_a_session_noted_and_the_graph(tmp_path: Path, write: Write) -> None:
    checkpoint = event_pb2.SessionLog(status=3, checkpoint_path="model-7", msg="saved")
    write(event_pb2.Event(graph_def=b"first"), event_pb2.Event(graph_def=b"second"))
    write(event_pb2.Event(wall_time=5.0, step=7, session_log=checkpoint))
    run = read(tmp_path).only
    ((step, wall_time, log),) = run.session_logs
    assert (step, wall_time, *log) == (7, 5.0, 3, "model-7", "saved")
    assert run.graph == b"second"


def test_a_name_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path, write: Write, scalar: Scalar
) -> None:
    write(scalar("Loss", 1, 1), histogram("weights"), name="train/events.out.tfevents.1")
    write(scalar("x", 1, 1), name="b/events.out.tfevents.1")
    runs = read(tmp_path)
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: runs["trian"], "no run 'trian'; did you mean 'train'?"),
        (lambda: runs["zzz"], "no run 'zzz' among 'b', 'train'"),
        (lambda: runs["train"].scalars["los"], "no scalar tag 'los'; did you mean 'Loss'?"),
        (lambda: runs["b"].histograms["x"], "no histogram tag 'x': there is none at all"),
    ]
    for look, message in wrong:
        with pytest.raises(KeyError) as raised:
            look()
        assert str(raised.value) == message
        assert str(pickle.loads(pickle.dumps(raised.value))) == message
    assert runs.get("zzz") is runs["b"].scalars.get("y") is None
    assert "zzz" not in runs


def test_a_name_that_is_no_utf8_is_escaped(tmp_path: Path, write: Write, scalar: Scalar) -> None:
    message = scalar("ab", 1.0, 1).SerializeToString().replace(b"ab", b"a\xff")
    write(frame(message))
    assert list(read(tmp_path).only.scalars) == [r"a\xff"]


@pytest.mark.parametrize("function", [read, check, stream])
def test_a_url_that_nobody_knows_is_refused(function: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match="nobody:// is not known"):
        function("nobody://knows/it")


def test_the_home_directory_may_be_abbreviated(
    tmp_path: Path, write: Write, scalar: Scalar, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(scalar("loss", 0.5, 1))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read("~").only.path == tmp_path


@pytest.mark.parametrize("always", [True, False])
def test_runs_that_share_tags_keep_their_own_metadata(
    tmp_path: Path, write: Write, always: bool
) -> None:
    plugins = {"a": "scalars", "b": "scalars", "c": "other"}
    for run, plugin in plugins.items():
        for step in range(10):
            value = summary_pb2.Summary.Value(tag="x")
            value.tensor.dtype = 1
            value.tensor.float_val.append(step)
            if always or step == 0:
                value.metadata.plugin_data.plugin_name = plugin
                value.metadata.summary_description = f"of {run}"
            event = event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value]))
            write(event, name=f"{run}/events.out.tfevents.1")
    runs = read(tmp_path)
    for run in "ab":
        assert runs[run].tags["x"][:3] == ("scalar", 10, "scalars")
        assert runs[run].tags["x"].description == f"of {run}"
        assert runs[run].scalars["x"].values.tolist() == list(range(10))
    assert runs["c"].tags["x"][:3] == ("tensor", 10, "other")
    assert runs["c"].tensors["x"][9].value.item() == 9
