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
from tensorboardX.summary import histogram_raw
from wandb.proto.wandb_internal_pb2 import Record

import runhooks as rh
from runhooks import summary
from runhooks.summary import WeightsAndBiasesWriter
from runhooks.testing import FakeClock

pytestmark = pytest.mark.slow

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


NUMBERS = np.random.default_rng(0).normal(size=10_000)
PIXELS = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)


def write(writer):
    """Write a row for each step, but for step 5, which has two."""
    with FakeClock(wall_start=1_700_000_000.5):
        writer.scalars({"loss": 0.1, "train/accuracy": 10}, 1)
    writer.scalars({"a": np.nan, "b": np.inf}, 2)
    for step, value in ((5, 1.0), (5, 2.0), (3, 3.0)):  # again, and late
        writer.scalar("loss", value, step)
    writer.histogram("weights", NUMBERS, 6)
    writer.histogram("empty", np.array([np.nan]), 6)
    # As tensorboardX does: a bin of its own for each of 2,000 numbers.
    limits = np.arange(1.0, 2001.0)
    writer.add_summary(histogram_raw("many", 0.0, 2000.0, 2000, 1.0, 1.0, limits, np.ones(2000)), 6)
    writer.image("layer/one", PIXELS, 7)
    writer.image("batch", np.stack([PIXELS, PIXELS]), 7)
    writer.audio("one", np.zeros(5), 7, 8000)
    writer.audio("two", np.zeros((2, 5, 1)), 7, 8000)
    writer.text("note", "hello", 7)
    # What has no place there is left out.
    writer.custom_scalars({"all": {"losses": ["loss"]}})
    writer.add_session_log(summary.SessionLog(summary.SessionStatus.START), 8)
    writer.graph(rh.Graph())
    writer.tensor("array", np.array([1.0, 2.0]), 8)
    writer.hparams({"rate": 0.1, "name": "adam", "nesterov": True}, {"best": 0.9}, step=9)


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """The directory of a run in which all was written, and its config."""
    directory = tmp_path_factory.mktemp("wandb")
    with start(directory) as run, WeightsAndBiasesWriter(run) as writer:
        write(writer)
        writer.flush()
        config = dict(run.config)
    return directory, config


@pytest.fixture(scope="module")
def rows(logged):
    return history(logged[0])


def at(rows, step):
    return [{k: v for k, v in row.items() if k != "global_step"} for row in rows
            if row["global_step"] == step]  # fmt: skip


def test_scalars_of_a_step_are_a_row_and_a_step_may_come_again_or_late(rows):
    assert [row["global_step"] for row in rows] == [1, 2, 5, 5, 3, 6, 7, 9]
    assert at(rows, 1) == [{"loss": 0.1, "train/accuracy": 10}]
    assert at(rows, 5) == [{"loss": 1.0}, {"loss": 2.0}]
    assert at(rows, 3) == [{"loss": 3.0}]
    [row] = at(rows, 2)
    assert np.isnan(float(row["a"]))
    assert float(row["b"]) == np.inf


def test_rows_are_drawn_over_the_global_step_at_the_time_of_the_call(rows, logged):
    found = list(records(logged[0]))
    metrics = [record.metric for record in found if record.HasField("metric")]
    assert ("*", "global_step") in [(metric.glob_name, metric.step_metric) for metric in metrics]
    first, *_ = [unfolded(r.history.item) for r in found if r.HasField("history")]
    assert first["_timestamp"] == 1_700_000_000.5


def test_a_histogram_keeps_its_counts_and_its_range(rows):
    [row] = at(rows, 6)
    edges, counts = np.array(row["weights"]["bins"]), np.array(row["weights"]["values"])
    assert np.all(np.diff(edges) >= 0)
    assert (edges[0], edges[-1]) == pytest.approx((NUMBERS.min(), NUMBERS.max()))
    # As the numbers themselves are counted between these edges, but for those on an edge.
    assert np.abs(np.histogram(NUMBERS, edges)[0] - counts).sum() == 0
    edges, counts = row["many"]["bins"], row["many"]["values"]
    assert (len(counts), sum(counts), edges[0], edges[1], edges[-1]) == (500, 2000, 0, 4, 2000)
    assert (row["empty"]["values"], row["empty"]["bins"]) == ([0], [0, 0])


def test_images_sounds_and_texts(rows, logged):
    [files] = logged[0].glob("wandb/offline-run-*/files")
    [row] = at(rows, 7)
    assert row.keys() == {"layer/one", "batch", "one", "two/0", "two/1", "note"}
    assert (row["batch"]["count"], row["layer/one"]["count"], row["note"]) == (2, 1, "hello")
    with Image.open(files / row["layer/one"]["filenames"][0]) as image:
        assert np.array_equal(np.asarray(image), PIXELS)
    assert (files / row["one"]["path"]).read_bytes().startswith(b"RIFF")


def test_hyperparameters_are_the_config(rows, logged):
    assert logged[1] == {"rate": 0.1, "name": "adam", "nesterov": True}
    assert at(rows, 9) == [{"best": 0.9}]


def test_a_run_that_is_finished_and_what_is_no_run_are_refused(tmp_path):
    run = start(tmp_path)
    writer = WeightsAndBiasesWriter(run)
    run.finish()
    writer.scalar("loss", 1.0, 1)
    with pytest.raises(wandb.Error, match="finished"):
        writer.flush()
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
