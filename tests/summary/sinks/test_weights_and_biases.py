"""Summaries into a run of Weights & Biases, offline: what is in its file is what was logged."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

import numpy as np
import pytest
import wandb
from PIL import Image
from wandb.proto.wandb_internal_pb2 import Record

import runhooks as rh
from runhooks import summary
from runhooks.summary import WeightsAndBiasesWriter
from runhooks.testing import FakeClock

_BLOCK, _HEADER = 1 << 15, struct.Struct("<IHB")
_WHOLE = (1, 4)  # or the last part


def records(directory):
    """What the file of a run holds: a log of LevelDB with a header of seven bytes of its own."""
    [path] = directory.glob("wandb/offline-run-*/*.wandb")
    content = path.read_bytes()
    at, record = 7, b""
    while at + _HEADER.size <= len(content):
        if _BLOCK - at % _BLOCK < _HEADER.size:
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        record += content[at : at + length]
        at += length
        if kind in _WHOLE:
            yield Record.FromString(record)
            record = b""


def unfolded(items):
    """Items of nested keys as dicts in dicts."""
    root = {}
    for item in items:
        *path, last = item.nested_key or [item.key]
        inner = root
        for key in path:
            inner = inner.setdefault(key, {})
        inner[last] = json.loads(item.value_json)
    return root


def history(directory):
    """All rows, less what W&B adds to them."""
    wandb.teardown()  # ends its own process, which may still be writing
    rows = (unfolded(r.history.item) for r in records(directory) if r.HasField("history"))
    return [{key: row[key] for key in row if not key.startswith("_")} for row in rows]


def start(directory):
    settings = wandb.Settings(silent=True, console="off")
    return wandb.init(mode="offline", dir=directory, project="project", settings=settings)


@pytest.fixture
def logged(tmp_path):
    """Lets a function write, and returns the rows that are then in the run's file."""

    def logged(write):
        with start(tmp_path) as run, WeightsAndBiasesWriter(run) as writer:
            write(writer)
        return history(tmp_path)

    return logged


@pytest.fixture
def media(tmp_path):
    def media(logged):
        [run] = tmp_path.glob("wandb/offline-run-*")
        return run / "files" / logged["path"]

    return media


def test_scalars_of_a_step_are_a_row(logged):
    def write(writer):
        for step in (10, 20):
            writer.scalars({"loss": 0.1, "train/accuracy": step}, step)

    assert logged(write) == [
        {"global_step": 10, "loss": 0.1, "train/accuracy": 10},
        {"global_step": 20, "loss": 0.1, "train/accuracy": 20},
    ]


def test_a_step_may_come_again_or_late(logged):
    def write(writer):
        for step, value in ((5, 1.0), (5, 2.0), (3, 3.0)):
            writer.scalar("loss", value, step)

    assert logged(write) == [
        {"global_step": 5, "loss": 1.0},
        {"global_step": 5, "loss": 2.0},
        {"global_step": 3, "loss": 3.0},
    ]


def test_all_is_drawn_over_the_global_step(logged, tmp_path):
    logged(lambda writer: writer.scalar("loss", 1.0, 1))
    metrics = [record.metric for record in records(tmp_path) if record.HasField("metric")]
    assert ("*", "global_step") in [(metric.glob_name, metric.step_metric) for metric in metrics]


def test_the_time_of_a_row_is_when_it_was_added(logged, tmp_path):
    def write(writer):
        with FakeClock(wall_start=1_700_000_000.5):
            writer.scalar("loss", 1.0, 1)

    logged(write)
    [row] = [unfolded(r.history.item) for r in records(tmp_path) if r.HasField("history")]
    assert row["_timestamp"] == 1_700_000_000.5


def test_numbers_that_are_not_finite(logged):
    [row] = logged(lambda writer: writer.scalars({"a": np.nan, "b": np.inf}, 1))
    assert np.isnan(float(row["a"]))
    assert float(row["b"]) == np.inf


def test_a_histogram_keeps_its_counts_and_its_range(logged):
    numbers = np.random.default_rng(0).normal(size=10_000)
    [row] = logged(lambda writer: writer.histogram("weights", numbers, 1))
    histogram = row["weights"]
    assert histogram["_type"] == "histogram"
    edges, counts = np.array(histogram["bins"]), np.array(histogram["values"])
    assert np.all(np.diff(edges) >= 0)
    assert (edges[0], edges[-1]) == pytest.approx((numbers.min(), numbers.max()))
    # As the numbers themselves are counted between these edges, but for those on an edge.
    assert np.abs(np.histogram(numbers, edges)[0] - counts).sum() == 0


def test_a_histogram_of_more_bins_than_wandb_takes(logged):
    def write(writer):
        # As tensorboardX does: a bin of its own for each of 2,000 numbers.
        from tensorboardX.summary import histogram_raw

        limits = np.arange(1.0, 2001.0)
        message = histogram_raw("many", 0.0, 2000.0, 2000, 1.0, 1.0, limits, np.ones(2000))
        writer.add_summary(message, 1)

    [row] = logged(write)
    edges, counts = row["many"]["bins"], row["many"]["values"]
    assert len(counts) == 500
    assert (sum(counts), edges[0], edges[-1]) == (2000, 0.0, 2000.0)
    assert edges[1] == 4.0


def test_a_histogram_of_nothing(logged):
    [row] = logged(lambda writer: writer.histogram("empty", np.array([np.nan]), 1))
    assert (row["empty"]["values"], row["empty"]["bins"]) == ([0], [0, 0])


def test_images(logged, media):
    pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)

    def write(writer):
        writer.image("layer/one", pixels, 1)
        writer.image("batch", np.stack([pixels, pixels]), 1)

    [row] = logged(write)
    assert (row["batch"]["count"], row["layer/one"]["count"]) == (2, 1)
    with Image.open(media({"path": row["layer/one"]["filenames"][0]})) as image:
        assert np.array_equal(np.asarray(image), pixels)


def test_sounds(logged, media):
    def write(writer):
        writer.audio("one", np.zeros(5), 1, 8000)
        writer.audio("batch", np.zeros((2, 5, 1)), 1, 8000)

    [row] = logged(write)
    assert row.keys() == {"global_step", "one", "batch/0", "batch/1"}
    assert media(row["one"]).read_bytes().startswith(b"RIFF")


def test_texts_tensors_and_curves(logged, media):
    def write(writer):
        writer.text("note", "hello", 1)
        writer.text("table", np.array([["a", "b"], ["c", "d"]]), 1)
        writer.tensor("array", np.array([1.0, 2.0]), 1)
        writer.pr_curve("curve", [0, 1], [0.2, 0.7], 1, num_thresholds=3)
        writer.mesh("cloud", np.ones((2, 3)), 1, colors=np.full((2, 3), 255))

    [row] = logged(write)
    assert (row["note"], row["array"]) == ("hello", [1.0, 2.0])
    assert json.loads(media(row["table"]).read_text())["data"] == [["a", "b"], ["c", "d"]]
    curve = json.loads(media(row["curve_table"]).read_text())
    assert curve["columns"] == ["recall", "precision"]
    assert len(curve["data"]) == 3
    [cloud] = row["cloud"]["objects"]
    assert json.loads(media(cloud).read_text()) == [[1, 1, 1, 255, 255, 255]] * 2


def test_hyperparameters_are_the_config(tmp_path):
    with start(tmp_path) as run, WeightsAndBiasesWriter(run) as writer:
        writer.hparams({"rate": 0.1, "name": "adam", "nesterov": True}, {"best": 0.9}, step=7)
        writer.flush()
        assert dict(run.config) == {"rate": 0.1, "name": "adam", "nesterov": True}
    assert history(tmp_path) == [{"global_step": 7, "best": 0.9}]


def test_what_has_no_place_there_is_left_out(logged):
    def write(writer):
        writer.custom_scalars({"all": {"losses": ["loss"]}})
        writer.add_session_log(summary.SessionLog(summary.SessionStatus.START), 3)
        writer.graph(rh.Graph())
        writer.scalar("loss", 1.0, 3)

    assert logged(write) == [{"global_step": 3, "loss": 1.0}]


def test_a_run_that_is_finished_refuses(tmp_path):
    run = start(tmp_path)
    writer = WeightsAndBiasesWriter(run)
    run.finish()
    writer.scalar("loss", 1.0, 1)
    with pytest.raises(wandb.Error, match="finished"):
        writer.flush()


def test_what_is_no_run_is_refused():
    with pytest.raises(TypeError, match="wandb.init"):
        WeightsAndBiasesWriter(None)


def test_what_was_added_is_logged_when_the_process_ends(tmp_path):
    code = (
        "import sys, wandb; from runhooks.summary import WeightsAndBiasesWriter; "
        "from runhooks.events.writing import background; background.LINGER_SECS = 600; "
        "settings = wandb.Settings(silent=True); "
        "run = wandb.init(mode='offline', dir=sys.argv[1], settings=settings); "
        "writer = WeightsAndBiasesWriter(run); writer.scalar('loss', 0.5, 1)"
    )
    wandb.teardown()  # or it would use the process that W&B has started for this one
    command = [sys.executable, "-c", code, str(tmp_path)]
    # What it prints is read up to the end of W&B's own process, which outlives it.
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    assert history(tmp_path) == [{"global_step": 1, "loss": 0.5}]


def test_a_hook_writes_with_it(logged, graph, model):
    loss = summary.scalar("loss", model.loss)

    def write(writer):
        saver = rh.SummarySaverHook(save_steps=2, summary_writer=writer, summary_op=loss)
        hooks = [saver, rh.StopAtStepHook(last_step=3)]
        with rh.SingularMonitoredSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(model.train_op)

    assert logged(write) == [{"global_step": 1, "loss": 0.0}, {"global_step": 3, "loss": 4.0}]
