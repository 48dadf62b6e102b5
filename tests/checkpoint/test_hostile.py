"""No checkpoint makes its reader crash, hang, print escapes or take memory without a bound.

``tests/soak/test_hostile_checkpoints.py`` looks for such ones much longer.
"""

from __future__ import annotations

import json
import math
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runhooks as rh
from runhooks.checkpoint import checkpoints, latest_checkpoint, read_checkpoint, restore_latest
from runhooks.errors import DataLossError

hostile = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("hostile.py"))))


AtStep = Callable[[int], Any]


class Best(rh.SessionRunHook):
    """A hook with a state."""

    def state_dict(self) -> dict[str, Any]:
        return {"value": np.float32(1), "table": np.arange(3)}

    def load_state_dict(self, state: Any) -> None:
        assert state["value"] == 1


def train(directory: Path) -> int | None:
    """Train for one more step; at which step that ends."""
    with rh.Graph().as_default():
        rh.Variable(np.ones(4), name="w")
        step = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=directory, hooks=[Best()], save_checkpoint_steps=1
        ) as sess:
            sess.run(step)
            return sess.global_step


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the checkpoints of a run, of the steps 0, 1 and 2."""
    directory = tmp_path_factory.mktemp("trained")
    assert [train(directory), train(directory)] == [1, 2]
    return directory


@pytest.fixture
def saved(trained: Path, tmp_path: Path) -> Path:
    """A copy of that, to tamper with."""
    return shutil.copytree(trained, tmp_path / "run")


class Session:
    """Takes what is restored."""

    checkpoint = global_step = loaded = None

    def load(self, snapshot: Any, only: Any = None) -> None:
        self.loaded = snapshot


def assert_skipped(directory: Path, caplog: pytest.LogCaptureFixture, *words: str) -> None:
    """The newest checkpoint is damaged: that is said, and the one before is restored."""
    newest = directory / "model.ckpt-2"
    with pytest.raises(DataLossError) as error:
        read_checkpoint(newest)
    assert error.value.path == str(newest)
    caplog.clear()
    sess = Session()
    assert restore_latest(rh.Saver(), sess, directory) == str(directory / "model.ckpt-1")
    assert sess.loaded.arrays["global_step"] == 1
    (warning,) = [it.getMessage() for it in caplog.records]
    assert warning.isprintable()
    assert all(word in warning for word in (str(newest), *words))


@pytest.mark.parametrize("what", ["fifo", "zeros", "outside"])
@pytest.mark.parametrize("name", ["manifest.json", "variables.safetensors", "states.json"])
def test_a_session_goes_on_from_the_checkpoint_before(
    saved: Path, caplog: pytest.LogCaptureFixture, name: str, what: str
) -> None:
    hostile.REPLACED[what](saved / "model.ckpt-2" / name)
    assert train(saved) == 2
    (warning,) = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert name in warning


@pytest.mark.parametrize("what", hostile.REPLACED)
@pytest.mark.parametrize("name", ["manifest.json", "variables.safetensors", "states.json"])
def test_what_is_not_a_file_of_a_checkpoint_is_never_read(
    saved: Path, caplog: pytest.LogCaptureFixture, name: str, what: str
) -> None:
    hostile.REPLACED[what](saved / "model.ckpt-2" / name)
    assert_skipped(saved, caplog, name)


@pytest.mark.parametrize("name", ["../outside", "/dev/zero", "\x1b[31m"])
def test_other_files_than_those_of_a_checkpoint_are_never_read(
    saved: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (saved / "outside").write_bytes(b"a secret")
    more = {name: {"size": 8, "crc32c": 1}}
    hostile.forge(saved / "model.ckpt-2", lambda it: {**it, "files": {**it["files"], **more}})
    assert_skipped(saved, caplog, "manifest.json")


STATES = [
    {"Best": {"value": {"$scalar": ["|O", 140_000_000_000_000]}}},
    {"Best": {"value": {"$scalar": ["V9", 5_000_000_000_000]}}},
    {"Best": {"value": {"$scalar": ["<f4", [1] * 9]}}},
    {"Best": {"value": {"$scalar": ["<i1", 300]}}},
    {"Best": {"value": {"$scalar": ["<i8", 1.5]}}},
    {"Best": {"value": {"$item": ["|O", "AAAAAAAAAAA="]}}},
    {"Best": {"value": {"$item": ["<U2000000000", ""]}}},
    {"Best": {"value": {"$array": ["0", "numpy", "|O", [3]]}}},
    {"Best": {"value": {"$array": ["0", "numpy", "i4,O", [3]]}}},
    {"Best": {"value": {"$array": ["0", "numpy", "<i8", [9]]}}},
    {"Best": {"value": {"$array": ["0", "numpy", "<i8", 9]}}},
    {"Best": {"value": {"$array": ["0", "torch", "load", [3]]}}},
    {"Best": {"value": {"$array": ["0", "jax key", "nonsense", [2]]}}},
    {"Best": {"value": {"$array": ["9", "numpy", "<i8", [3]]}}},
    {"Best": {"value": [{"$array": ["0", "numpy", "<i8", [3]]}] * 2}},
    {"Best": {"value": {"$array": 5}}},
    {"Best": {"value": {"$dict": 5}}},
    {"Best": {"value": {"$dict": [[[], 1]]}}},
    {"Best": {"value": {"$bytes": 5}}},
    {"Best": {"value": {"$int": "\x1b[31m"}}},
    {"Best": {"value": {"$str": "gA=="}}},
    [1, 2],
    "states",
    5,
    None,
    {"$tuple": [1]},
    {"$dict": [[1, 2]]},
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"a": 1' + b"0" * 5000 + b"}",
    b"",
    b"\xff\xfe\x00",
]


@pytest.mark.parametrize("states", STATES, ids=lambda it: str(it)[:60])
def test_states_that_make_no_sense_are_damage(
    saved: Path, caplog: pytest.LogCaptureFixture, states: Any
) -> None:
    content = states if isinstance(states, bytes) else json.dumps(states).encode()
    hostile.forge_file(saved / "model.ckpt-2", "states.json", content)
    assert_skipped(saved, caplog, "states.json")


def test_an_array_of_an_unknown_library_is_told_and_imports_nothing(saved: Path) -> None:
    # It may be sound, so that to go on from an older checkpoint would lose steps.
    states = {"Best": {"value": {"$array": ["0", "antigravity", "fly", [3]]}}}
    hostile.forge_file(saved / "model.ckpt-2", "states.json", json.dumps(states).encode())
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        with pytest.raises(ImportError, match="antigravity"):
            rh.MonitoredTrainingSession(checkpoint_dir=saved)
    assert "antigravity" not in sys.modules


FIELDS = [
    ("format_version", "2"), ("format_version", 0), ("format_version", True),
    ("global_step", "7"), ("global_step", 7.0), ("global_step", 1 << 64),
    ("global_step", True), ("wall_time", math.nan), ("wall_time", "now"),
    ("wall_time", 1e300), ("wall_time", -5), ("wall_time", 10**400),
    ("series_start", None), ("series_start", math.inf), ("metrics", []),
    ("metrics", {"loss": "low"}), ("metrics", {"loss": None}), ("metrics", {"loss": 10**400}),
    ("files", {}), ("files", []), ("files", {"states.json": {"size": 1, "crc32c": 1}}),
    ("arrays", []), ("arrays", {}), ("arrays", {"w": 5}), ("arrays", {"w": {"dtype": "float64"}}),
    ("arrays", {"w": {"dtype": "\x1b[31mfloat64", "shape": [4]}}),
    ("arrays", {"w": {"dtype": "float64", "shape": 4}}),
    ("arrays", {"w": {"dtype": "float64", "shape": [-4]}}),
    ("arrays", {"w": {"dtype": "float64", "shape": [1 << 64]}}),
    ("arrays", {"w": {"dtype": "float64", "shape": [4.0]}}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), FIELDS, ids=lambda it: str(it)[:40])
def test_manifests_that_make_no_sense_are_damage(
    saved: Path, caplog: pytest.LogCaptureFixture, field: str, value: Any
) -> None:
    hostile.forge(saved / "model.ckpt-2", lambda it: {**it, field: value})
    assert_skipped(saved, caplog)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"5", b"{}", b"\xff", b"[" * 100_000, b'{"a":' * 100_000]
)
def test_manifests_that_are_not_mappings_are_damage(
    saved: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (saved / "model.ckpt-2" / "manifest.json").write_bytes(content)
    assert_skipped(saved, caplog, "manifest.json")


@pytest.mark.parametrize("field", ["format_version", "global_step", "wall_time", "files", "arrays"])
def test_manifests_without_a_field_are_damage(
    saved: Path, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    hostile.forge(saved / "model.ckpt-2", lambda it: {k: v for k, v in it.items() if k != field})
    assert_skipped(saved, caplog, "manifest.json", field)


def test_variables_that_the_manifest_does_not_state_are_damage(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved / "model.ckpt-2"
    content = (path / "variables.safetensors").read_bytes()
    change: Callable[[Any], Any] = lambda it: {**it, "w": {**it["w"], "dtype": "I64"}}  # noqa: E731
    hostile.forge_file(path, "variables.safetensors", hostile.with_header(content, change))
    assert_skipped(saved, caplog, "variables.safetensors", "'w'")


def test_a_newer_format_is_refused_without_its_escapes(saved: Path) -> None:
    hostile.forge(
        saved / "model.ckpt-2",
        lambda it: {**it, "format_version": 9, "runhooks_version": "\x1b[0m"},
    )
    with pytest.raises(ValueError, match="format is 9") as error:
        train(saved)
    assert str(error.value).isprintable()


def test_a_manifest_without_end_is_not_read(saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (saved / "model.ckpt-2" / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)
    assert_skipped(saved, caplog, "manifest.json")


def test_names_of_checkpoints_are_printed_without_their_escapes(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = saved / "\x1b[31mmodel.ckpt-9"
    shutil.copytree(saved / "model.ckpt-2", odd)
    (odd / "manifest.json").write_bytes(b"")
    assert restore_latest(rh.Saver(), Session(), saved) == str(saved / "model.ckpt-2")
    assert len(caplog.records) == 1
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_a_sound_one_is_what_the_others_are_made_of() -> None:
    with hostile.tampered(lambda path: None) as directory:
        assert hostile.exercise(directory, hostile.LIMIT)
        assert checkpoints(directory) == [latest_checkpoint(directory)]


@pytest.mark.parametrize("what", hostile.REPLACED)
@pytest.mark.parametrize("name", hostile.FILES)
def test_any_file_may_be_anything(name: str, what: str) -> None:
    with hostile.tampered(lambda path: hostile.REPLACED[what](path / name)) as directory:
        assert not hostile.exercise(directory, hostile.LIMIT)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(hostile.FILES), st.integers(0, 5000), st.integers(1, 255), st.booleans())
def test_any_byte_may_be_another(name: str, at: int, bits: int, forged: bool) -> None:
    hostile.flip(name, at, bits, forged)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_field_may_be_another(data: st.DataObject) -> None:
    hostile.change_a_field(data.draw)
