"""JSON lines: whole lines only, whatever happens to the process, the disk or the file."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import pickle
import resource
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runhooks import summary
from runhooks.summary import JsonLinesWriter
from runhooks.testing import FakeClock

START = summary.SessionLog(summary.SessionStatus.START)
CHECKPOINT = summary.SessionLog(summary.SessionStatus.CHECKPOINT, "model.ckpt-4")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "metrics.jsonl"


def lines(path):
    def no_constant(name):
        raise AssertionError(f"{name} is no JSON")

    text = path.read_text()
    assert text.endswith("\n") or not text
    return [json.loads(line, parse_constant=no_constant) for line in text.splitlines()]


def values(path):
    return [(line["tag"], line["step"], line["value"]) for line in lines(path)]


def test_a_line_for_each_value(path):
    with FakeClock(wall_start=1_700_000_000.5), JsonLinesWriter(path) as writer:
        writer.scalars({"loss": 0.1, "acc": np.float32(0.5)}, 3)
    assert path.read_text() == (
        '{"tag": "loss", "kind": "scalar", "step": 3, "wall_time": 1700000000.5, "value": 0.1}\n'
        '{"tag": "acc", "kind": "scalar", "step": 3, "wall_time": 1700000000.5, "value": 0.5}\n'
    )


def test_every_kind_is_json(path):
    with JsonLinesWriter(path) as writer:
        writer.histogram("spread", np.arange(5.0), 1)
        writer.image("picture", np.zeros((2, 3, 3), np.uint8), 1)
        writer.audio("sound", np.zeros(5), 1, 8000)
        writer.text("note", "hello", 1)
        writer.text("table", np.array([["a", "b"], ["c", "ü"]]), 1)
        writer.tensor("array", np.array([[1.0, np.inf], [np.nan, -np.inf]]), 1)
        writer.tensor("small", np.array([[True, False]]), 1)
        writer.tensor("complex", np.array([1 + 2j]), 1)
        writer.pr_curve("curve", [0, 1], [0.2, 0.7], 1, num_thresholds=3)
        writer.mesh("cloud", np.zeros((2, 3)), 1)
        writer.hparams({"rate": 0.1, "name": "adam", "nesterov": True}, step=1)
        writer.custom_scalars({"all": {"losses": ["loss"]}})
    found = {line["tag"]: line["value"] for line in lines(path)}
    assert found["spread"]["counts"][0] == 1
    assert found["spread"]["sum"] == 10
    assert base64.b64decode(found["picture"][0]["encoded"]).startswith(b"\x89PNG")
    assert found["sound"][0]["sample_rate"] == 8000
    assert found["note"] == "hello"
    assert found["table"] == [["a", "b"], ["c", "ü"]]
    assert found["array"] == [[1.0, "Infinity"], ["NaN", "-Infinity"]]
    assert found["small"] == [[True, False]]
    assert found["complex"] == [[1.0, 2.0]]
    assert np.shape(found["curve"]) == (6, 3)
    assert found["cloud_VERTEX"] == [[[0.0] * 3] * 2]
    assert found["_hparams_/session_start_info"] == {"rate": 0.1, "name": "adam", "nesterov": True}


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(), min_size=1),  # surrogates, which UTF-8 has not, among them
            st.floats(),
            st.integers(-(1 << 63), (1 << 63) - 1),
        )
    )
)
def test_any_scalar_comes_back_as_it_was(tmp_path_factory, points):
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    with JsonLinesWriter(path) as writer:
        for tag, value, step in points:
            writer.scalar(tag, value, step)
    numbers = [line["value"] for line in lines(path)]
    assert [float(number) for number in numbers] == pytest.approx(
        [value for _, value, _ in points], rel=0, abs=0, nan_ok=True
    )
    assert [isinstance(number, str) for number in numbers] == [
        not math.isfinite(value) for _, value, _ in points
    ]
    assert [line["step"] for line in lines(path)] == [step for _, _, step in points]
    assert [line["tag"] for line in lines(path)] == [tag for tag, _, _ in points]


def test_a_session_that_starts_says_so_once(path):
    with JsonLinesWriter(path) as writer:
        writer.scalar("loss", 1.0, 7)
        for _ in range(3):  # several hooks share the writer
            writer.add_session_log(START, 5)
            writer.add_session_log(CHECKPOINT, 4)  # of the step that it starts after
        writer.scalar("loss", 2.0, 5)
        writer.add_session_log(START, 5)
    told = [
        (it["step"], it["value"]["status"] if it["kind"] == "session_log" else it["tag"])
        for it in lines(path)
    ]
    assert told == [
        *((7, "loss"), (5, "START"), *[(4, "CHECKPOINT")] * 3, (5, "loss"), (5, "START")),
    ]


def test_a_line_without_an_end_is_kept_and_ended(path):
    path.parent.mkdir()
    path.write_text('{"step": 1}\n{"step": 2}')
    with JsonLinesWriter(path) as writer:
        writer.scalar("loss", 0.5, 3)
    assert [line["step"] for line in lines(path)] == [1, 2, 3]


def test_a_file_that_was_deleted_is_an_error_and_made_again(path):
    with JsonLinesWriter(path) as writer:
        writer.scalar("loss", 1.0, 1)
        writer.flush()
        path.unlink()
        writer.scalar("loss", 1.5, 1)
        with pytest.raises(FileNotFoundError, match="reopen") as raised:
            writer.flush()
        assert raised.value.filename == str(path)
        writer.reopen()
        writer.scalar("loss", 2.0, 2)
    assert values(path) == [("loss", 2, 2.0)]


@contextlib.contextmanager
def disk_of(size):
    """Files cannot grow beyond ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_keeps_the_lines_that_fit(path):
    with JsonLinesWriter(path) as writer:
        with disk_of(1 << 16):
            for step in range(1, 2_000):
                writer.scalar("loss", step, step)
            with pytest.raises(OSError, match="File too large"):
                writer.flush()
        size = path.stat().st_size
        assert (1 << 16) - 150 < size <= 1 << 16
        writer.scalar("loss", 5_000, 5_000)
    *fitting, last = [step for _, step, _ in values(path)]
    assert fitting == list(range(1, len(fitting) + 1))
    assert last == 5_000


def test_it_pickles_as_its_path(path):
    with JsonLinesWriter(path) as writer:
        writer.scalar("loss", 1.0, 1)
        writer.flush()
        with pickle.loads(pickle.dumps(writer)) as other:
            other.scalar("loss", 2.0, 2)
    assert [step for _, step, _ in values(path)] == [1, 2]


FORKED = """
import os, sys
from runhooks.summary import JsonLinesWriter
writer = JsonLinesWriter(sys.argv[1])
writer.scalar("parent", 1.0, 1)
child = os.fork()
for step in range(2, 1000):
    writer.scalar("parent" if child else "child", 2.0, step)
writer.close()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    os._exit(0)
"""


def test_a_forked_child_writes_its_own_lines_to_the_same_file(path):
    subprocess.run([sys.executable, "-c", FORKED, str(path)], check=True, timeout=60)
    found = values(path)
    assert [step for tag, step, _ in found if tag == "parent"] == [*range(1, 1000)]
    assert [step for tag, step, _ in found if tag == "child"] == [*range(2, 1000)]
