"""No checkpoint makes its reader crash, hang, print escapes or take memory without a bound."""

import contextlib
import json
import math
import os
import shutil
import socket
import sys
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import runhooks as rh
from runhooks.checkpoint import Saver, Snapshot, read_checkpoint, restore_latest, write_checkpoint
from runhooks.checkpoint.format import StoredCheckpoint
from runhooks.errors import DataLossError, NotFoundError
from runhooks.testing import FakeClock
from tests.checkpoint.sealing import forge

FILE = "checkpoint.safetensors"
OF_EVERYTHING = {
    "hook": {
        "best": np.float32(0.5),
        "at": np.datetime64(5, "ns"),
        "seen": [(1, None), True, 2.5, b"ab", {1: "x"}, 1 << 3000],
        "half": np.ones(3, ml_dtypes.bfloat16),
        "table": np.arange(4),
        "tensor": torch.ones(3),
    },
    "input": {"position": 7},
}
ARRAYS = {
    "global_step": np.array(7),
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "z": np.ones(2, np.complex128),
}
# What errors and their messages may take.
MOST_BYTES = 400_000


def write(path):
    """Save a small checkpoint with something of everything."""
    write_checkpoint(path, Snapshot(dict(ARRAYS), OF_EVERYTHING), global_step=7)
    return path


def set_to(value, path, new):
    """``value`` with ``new`` at ``path`` in it; ``...`` removes what is there."""
    if not path:
        return new
    value = value.copy()
    if path[1:] or new is not ...:
        value[path[0]] = set_to(value[path[0]], path[1:], new)
    else:
        del value[path[0]]
    return value


def paths(value):
    """Where something is in a value of JSON."""
    yield ()
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ((key, *rest) for rest in paths(item))


def link_outside(path):
    """Put a link in the place of a file; where it leads, there is the file."""
    path.rename(path.parent.parent / "outside")
    path.symlink_to("../outside")


def bind(path):
    path.unlink()
    there = Path.cwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as it:
            it.bind(path.name)
    finally:
        os.chdir(there)


def in_place(make):
    def replace(path):
        path.unlink()
        make(path)

    return replace


#: What may be in the place of a file.
REPLACED = {
    "fifo": in_place(os.mkfifo),
    "zeros": in_place(lambda path: path.symlink_to("/dev/zero")),
    "terminal": in_place(lambda path: path.symlink_to("/dev/tty")),
    "itself": in_place(lambda path: path.symlink_to(path)),
    "nowhere": in_place(lambda path: path.symlink_to("nowhere")),
    "process": in_place(lambda path: path.symlink_to("/proc/self/mem")),
    "outside": link_outside,
    "folder": in_place(Path.mkdir),
    "socket": bind,
    "nothing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "sparse": lambda path: os.truncate(path, 1 << 40),
}

#: Values that have done harm to readers of such files.
HARMFUL = [
    *(None, True, math.nan, math.inf, 1e300, 0, 1, -1, 1 << 31, 1 << 40, 1 << 63, 10**400, ""),
    *("|O", "O", "<U500000000", "V2000000000", "float32", "object", "torch", "F64", "\x1b[31m"),
    *("../outside", "/dev/zero", FILE, [], {}, [[]], {"": {}}, [0] * 99, "a" * 9999),
    *({"$array": ["0", "numpy", "<i8", [4]]}, {"$tuple": 5}, {"$dict": [[[], 1]]}, {"$": 0}),
    *({"$scalar": ["V2000000000", ""]}, {"$scalar": ["|O", 1 << 46]}, {"$int": "z"}),
]

json_values = st.recursive(
    st.sampled_from(HARMFUL) | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["$array", "$dict", "$tuple", "$scalar", "$bytes", "$int"])
            | st.text(max_size=3),
            inner,
            max_size=2,
        )
    ),
    max_leaves=6,
)


class Session:
    """A session that takes any values."""

    checkpoint = global_step = loaded = None

    def load(self, snapshot, only=None):
        self.loaded = snapshot


def exercise(directory, caplog, most_bytes=1 << 40):
    """Do all there is to do with a directory of checkpoints; whether one could be restored.

    Whatever is in it, nothing raises but what says that it is damaged, nothing goes to a terminal
    that would not be printed, and no more memory is taken than ``most_bytes``.
    """
    session = Session()
    said = []
    caplog.clear()
    tracemalloc.start()
    try:
        for path in directory.iterdir():
            sound = readable(path, read_checkpoint, said)
            assert readable(path, lambda it: StoredCheckpoint(it).check(), said) or not sound
            assert readable(path, rh.load, said) or not sound
        with contextlib.suppress(DataLossError, ValueError, ImportError):
            restore_latest(Saver(), session, directory)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most_bytes, f"{peak} bytes were taken"
    assert all(line.isprintable() for line in (*said, *caplog.messages))
    return session.loaded is not None


def readable(path, read, said):
    """Whether it can be read; if not, ``said`` gets what the error says."""
    try:
        read(path)
    except (DataLossError, NotFoundError, ValueError) as error:
        refusal = error
    except ImportError as error:  # a library that this process does not have, for all it can know
        said.append(str(error))
        return False
    else:
        return True
    said.append(str(refusal))
    newer = isinstance(refusal, ValueError)
    assert "its format is" in said[-1] if newer else refusal.path == str(path)
    return False


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A directory with a sound checkpoint."""
    return write(tmp_path_factory.mktemp("sound") / "model.ckpt-7").parent


@pytest.fixture(scope="module")
def most_bytes(sound):
    """Twice what a sound checkpoint takes, and what errors and their messages do."""
    rh.load(sound)  # imports what it needs
    tracemalloc.start()
    read_checkpoint(sound / "model.ckpt-7")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return 2 * peak + MOST_BYTES


@contextlib.contextmanager
def copy_of(directory):
    """A copy that may be tampered with: the checkpoint in it."""
    copy = directory.parent / "copy"
    shutil.copytree(directory, copy)
    try:
        yield copy / "model.ckpt-7"
    finally:
        shutil.rmtree(copy)


@pytest.fixture
def saved(tmp_path):
    """A directory with checkpoints of the steps 0, 1 and 2, of a time past, to tamper with."""
    states = {"Best": {"value": np.float32(1), "table": np.arange(3)}}
    with FakeClock() as clock:
        for step in range(3):
            arrays = {"global_step": np.array(step), "w": np.ones(4)}
            path = tmp_path / "run" / f"model.ckpt-{step}"
            write_checkpoint(path, Snapshot(arrays, states), global_step=step)
            clock.advance(1)
    return tmp_path / "run"


def assert_skipped(directory, caplog, *words):
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


@pytest.mark.parametrize(
    "name", ["../outside", "/dev/zero", "\x1b[31m", "attempt-1.safetensors/.."]
)
def test_other_files_than_those_of_a_checkpoint_are_never_read(saved, caplog, name):
    (saved / "outside").write_bytes(b"a secret")
    more = {"files": {name: [8, 1]}, "arrays": {}, "differing": [], "chief": 0}
    forge(saved / "model.ckpt-2", lambda it: it["about"].update(more))
    assert_skipped(saved, caplog, FILE, "'files'")


STATES = [
    {"Best": {"value": {"$scalar": ["|O", 140_000_000_000_000]}}},
    {"Best": {"value": {"$scalar": ["<f4", [1] * 9]}}},
    {"Best": {"value": {"$scalar": ["<i8", "AAAA"]}}},
    {"Best": {"value": {"$scalar": ["|O", "AAAAAAAAAAA="]}}},
    {"Best": {"value": {"$array": ["0", "numpy", "|O", [3]]}}},
    {"Best": {"value": {"$array": ["0", "numpy", "<i8", [9]]}}},
    {"Best": {"value": {"$array": ["0", "torch", "load", [3]]}}},
    {"Best": {"value": {"$array": ["0", "jax key", "nonsense", [2]]}}},
    {"Best": {"value": {"$array": ["9", "numpy", "<i8", [3]]}}},
    {"Best": {"value": [{"$array": ["0", "numpy", "<i8", [3]]}] * 2}},
    {"Best": {"value": {"$dict": 5}}},
    {"Best": {"value": {"$bytes": 5}}},
    {"Best": {"value": {"$int": "\x1b[31m"}}},
    {"Best": {"value": {"$str": "gA=="}}},
    [1, 2],
    {"$tuple": [1]},
    b"[" * 100_000,
    b'{"a": 1' + b"0" * 5000 + b"}",
    b"",
    b"\xff\xfe\x00",
]


@pytest.mark.parametrize("states", STATES, ids=lambda it: str(it)[:60])
def test_states_that_make_no_sense_are_damage(saved, caplog, states):
    text = states.decode("latin1") if isinstance(states, bytes) else json.dumps(states)
    forge(saved / "model.ckpt-2", lambda it: it.update(states=text))
    assert_skipped(saved, caplog, FILE)


def test_an_array_of_an_unknown_library_is_told_and_imports_nothing(saved):
    # It may be sound, so that to go on from an older checkpoint would lose steps.
    states = {"Best": {"value": {"$array": ["0", "antigravity", "fly", [3]]}}}
    forge(saved / "model.ckpt-2", lambda it: it.update(states=json.dumps(states)))
    with pytest.raises(ImportError, match="antigravity"):
        restore_latest(Saver(), Session(), saved)
    assert "antigravity" not in sys.modules


FIELDS = [
    ("format", "2"), ("format", 0), ("format", True),
    ("global_step", "7"), ("global_step", 7.0), ("global_step", 1 << 64),
    ("global_step", True), ("wall_time", math.nan), ("wall_time", "now"),
    ("wall_time", 1e300), ("wall_time", -5), ("wall_time", 10**400),
    ("series_start", None), ("series_start", math.inf), ("metrics", []),
    ("metrics", {"loss": "low"}), ("metrics", {"loss": None}), ("metrics", {"loss": 10**400}),
    ("files", {}), ("files", []), ("size", 1), ("size", "8"),
    *((name, ...) for name in ("format", "global_step", "wall_time", "metrics", "size")),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), FIELDS, ids=lambda it: str(it)[:40])
def test_manifests_that_make_no_sense_are_damage(saved, caplog, field, value):
    def change(it):
        it["about"].pop(field, None) if value is ... else it["about"].update({field: value})

    forge(saved / "model.ckpt-2", change)
    assert_skipped(saved, caplog, FILE)


DTYPES = [
    *("[]", '{"w": 5}', '{"w": "\x1b[31mfloat64"}', '{"w": "complex128"}', "{", "[" * 100_000),
    *([], None),
]


@pytest.mark.parametrize("text", DTYPES, ids=lambda it: str(it)[:40])
def test_dtypes_that_make_no_sense_are_damage(saved, caplog, text):
    forge(saved / "model.ckpt-2", lambda it: it.update(dtypes=text))
    assert_skipped(saved, caplog, FILE)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"[" * 100_000, b'{"a":' * 100_000])
@pytest.mark.parametrize("length", [0, 8, 1 << 20, 1 << 40, (1 << 64) - 1])
def test_files_that_are_none_of_ours_are_damage(saved, caplog, content, length):
    (saved / "model.ckpt-2" / FILE).write_bytes(length.to_bytes(8, "little") + content)
    assert_skipped(saved, caplog, FILE)


def test_a_newer_format_is_refused_without_its_escapes(saved):
    newer = {"format": 9, "runhooks_version": "\x1b[0m"}
    forge(saved / "model.ckpt-2", lambda it: it["about"].update(newer))
    with pytest.raises(ValueError, match="format is 9") as error:
        restore_latest(Saver(), Session(), saved)
    assert str(error.value).isprintable()


def test_names_of_checkpoints_are_printed_without_their_escapes(saved, caplog):
    odd = saved / "\x1b[31mmodel.ckpt-9"
    shutil.copytree(saved / "model.ckpt-2", odd)
    (odd / FILE).write_bytes(b"")
    assert restore_latest(Saver(), Session(), saved) == str(saved / "model.ckpt-2")
    assert len(caplog.records) == 1
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_a_sound_one_is_what_the_others_are_made_of(sound, caplog, most_bytes):
    assert exercise(sound, caplog, most_bytes)


@pytest.mark.parametrize("what", REPLACED)
def test_the_file_may_be_anything(sound, caplog, most_bytes, what):
    with copy_of(sound) as path:
        REPLACED[what](path / FILE)
        assert not exercise(path.parent, caplog, most_bytes)


fuzzed = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.slow
@fuzzed
@given(data=st.data())
def test_any_field_may_be_another(sound, caplog, most_bytes, data):
    def change(it):
        said = {name: it[name] for name in ("about", "arrays")} | {
            "states": json.loads(it["states"])
        }
        for _ in range(data.draw(st.integers(1, 3))):
            where = data.draw(st.sampled_from(list(paths(said))[1:]))
            said = set_to(said, where, data.draw(json_values | st.just(...)))
        said["states"] = json.dumps(said["states"]) if "states" in said else None
        it.update({"about": None, "arrays": {}, **said})

    with copy_of(sound) as path:
        forge(path, change)
        exercise(path.parent, caplog, most_bytes)
