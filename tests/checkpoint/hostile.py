"""Checkpoints that somebody has tampered with, checksums and all, and what must come of them.

``test_hostile.py`` tries some, ``tests/soak/test_hostile_checkpoints.py`` very many.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import socket
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import ml_dtypes
import numpy as np
import torch
from hypothesis import strategies as st

import runhooks as rh
from runhooks.checkpoint import (
    Saver,
    Snapshot,
    read_checkpoint,
    restore_latest,
    write_checkpoint,
)
from runhooks.checkpoint.format import check_checkpoint
from runhooks.errors import DataLossError, NotFoundError

STATES = {
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
#: The data files of a checkpoint, and its manifest last.
FILES = ("variables.safetensors", "states.safetensors", "states.json", "manifest.json")
# What errors and their messages may take.
MOST_BYTES = 400_000


def write(path: Path) -> Path:
    """Save a small checkpoint with something of everything."""
    write_checkpoint(path, Snapshot(dict(ARRAYS), STATES), global_step=7)
    return path


def forge(path: Path, change: Callable[[Any], Any]) -> None:
    """Let ``change`` make another manifest of that of the checkpoint, and give it a right sum."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["crc32c"]
    manifest = change(manifest)
    if isinstance(manifest, dict):
        text = json.dumps(manifest, sort_keys=True).encode()
        manifest = {**manifest, "crc32c": google_crc32c.value(text)}
    (path / "manifest.json").write_text(json.dumps(manifest))


def forge_file(path: Path, name: str, content: bytes) -> None:
    """Give the file ``name`` of a checkpoint this content, and let the manifest agree."""
    (path / name).write_bytes(content)
    digest = {"size": len(content), "crc32c": google_crc32c.value(content)}
    forge(path, lambda it: {**it, "files": {**it["files"], name: digest}})


def with_header(content: bytes, change: Callable[[Any], Any]) -> bytes:
    """A safetensors file with another header."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(change(json.loads(content[8:end]))).encode()
    return len(header).to_bytes(8, "little") + header + content[end:]


def set_to(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """``value`` with ``new`` at ``path`` in it; ``...`` removes what is there."""
    if not path:
        return new
    value = value.copy()
    if path[1:] or new is not ...:
        value[path[0]] = set_to(value[path[0]], path[1:], new)
    else:
        del value[path[0]]
    return value


def paths(value: Any) -> Iterator[tuple[Any, ...]]:
    """Where something is in a value of JSON."""
    yield ()
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ((key, *rest) for rest in paths(item))


def link_outside(path: Path) -> None:
    """Put a link in the place of a file; where it leads, there is the file."""
    path.rename(path.parent.parent / "outside")
    path.symlink_to("../outside")


def bind(path: Path) -> None:
    path.unlink()
    there = Path.cwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as it:
            it.bind(path.name)
    finally:
        os.chdir(there)


def in_place(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


#: What may be in the place of a file.
REPLACED: dict[str, Callable[[Path], object]] = {
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
HARMFUL: list[Any] = [
    *(None, True, math.nan, math.inf, 1e300, 0, 1, -1, 1 << 31, 1 << 40, 1 << 63, 10**400, ""),
    *("|O", "O", "<U500000000", "V2000000000", "float32", "object", "torch", "F64", "\x1b[31m"),
    *("../outside", "/dev/zero", "manifest.json", [], {}, [[]], {"": {}}, [0] * 99, "a" * 9999),
    *({"$array": ["0", "numpy", "<i8", [4]]}, {"$tuple": 5}, {"$dict": [[[], 1]]}, {"$": 0}),
    *({"$item": ["V2000000000", ""]}, {"$scalar": ["|O", 1 << 46]}, {"$int": "z"}),
]

json_values = st.recursive(
    st.sampled_from(HARMFUL) | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["$array", "$dict", "$tuple", "$scalar", "$item", "$bytes", "$int"])
            | st.text(max_size=3),
            inner,
            max_size=2,
        )
    ),
    max_leaves=6,
)


class Session:
    """A session that takes any values."""

    checkpoint: str | None = None
    global_step = None

    def load(self, snapshot: Snapshot, only: Any = None) -> None:
        self.loaded = snapshot


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def exercise(directory: Path, most_bytes: int) -> bool:
    """Do all there is to do with a directory of checkpoints; whether one could be restored.

    Whatever is in it, nothing raises but what says that it is damaged, nothing goes to a terminal
    that would not be printed, and no more memory is taken than ``most_bytes``.
    """
    log = _Lines()
    logging.getLogger("runhooks").addHandler(log)
    session = Session()
    said: list[str] = []
    tracemalloc.start()
    try:
        for path in directory.iterdir():
            sound = readable(path, read_checkpoint, said)
            assert readable(path, check_checkpoint, said) or not sound
            assert readable(path, rh.load, said) or not sound
        with contextlib.suppress(DataLossError, ValueError, ImportError):
            restore_latest(Saver(), session, directory)  # type: ignore[arg-type]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        logging.getLogger("runhooks").removeHandler(log)
    assert peak < most_bytes, f"{peak} bytes were taken"
    assert all(line.isprintable() for line in (*said, *log.lines))
    return hasattr(session, "loaded")


def readable(path: Path, read: Callable[[Path], object], said: list[str]) -> bool:
    """Whether it can be read; if not, ``said`` gets what the error says."""
    refusal: Exception
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
    assert "its format is" in said[-1] if newer else refusal.path == str(path)  # type: ignore[attr-defined]
    return False


@contextlib.contextmanager
def tampered(tamper: Callable[[Path], object]) -> Iterator[Path]:
    """A directory with a checkpoint that ``tamper`` has been given."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ckpt-7")
        shutil.copytree(_sound(), path)
        tamper(path)
        yield Path(folder)


def most_bytes() -> int:
    """Twice what a sound checkpoint takes, and what errors and their messages do."""
    with tampered(lambda path: None) as directory:
        exercise(directory, 1 << 40)  # imports what it needs
        tracemalloc.start()
        read_checkpoint(directory / "model.ckpt-7")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return 2 * peak + MOST_BYTES


_made: list[tempfile.TemporaryDirectory[str]] = []


def _sound() -> Path:
    if not _made:
        _made.append(tempfile.TemporaryDirectory())
        write(Path(_made[0].name, "model.ckpt-7"))
    return Path(_made[0].name, "model.ckpt-7")


def flip(name: str, at: int, bits: int, forged: bool) -> None:
    """Change a byte of a file, and with ``forged`` all sums; see what comes of it."""

    def tamper(path: Path) -> None:
        content = bytearray((path / name).read_bytes())
        content[at % len(content)] ^= bits
        if forged and name != "manifest.json":
            forge_file(path, name, bytes(content))
        else:
            (path / name).write_bytes(content)

    with tampered(tamper) as directory:
        restored = exercise(directory, LIMIT)
        assert not restored or forged or name == "manifest.json"  # a blank may become another


def fields(name: str) -> list[tuple[Any, ...]]:
    """Where something is in the JSON of a file."""
    found = paths(content_of(_sound() / name))
    return [where for where in found if where[:1] != ("crc32c",)]


def content_of(path: Path) -> Any:
    """The JSON in a file of a checkpoint."""
    content = path.read_bytes()
    if path.suffix == ".safetensors":
        content = content[8 : 8 + int.from_bytes(content[:8], "little")]
    return json.loads(content)


def set_field(name: str, where: tuple[Any, ...], value: Any) -> None:
    """Give what is at ``where`` in a file another value; see what comes of it."""
    change(name, lambda content: set_to(content, where, value))


def change(name: str, changed: Callable[[Any], Any]) -> None:
    """Change the JSON of a file, and all sums; see what comes of it."""

    def tamper(path: Path) -> None:
        content = (path / name).read_bytes()
        if name == "manifest.json":
            forge(path, changed)
        elif name == "states.json":
            forge_file(path, name, json.dumps(changed(json.loads(content))).encode())
        else:
            forge_file(path, name, with_header(content, changed))

    with tampered(tamper) as directory:
        exercise(directory, LIMIT)


def change_a_field(draw: Callable[[Any], Any]) -> None:
    """Change some values of the manifest, of the states, or of a header; see what comes of it."""
    name = draw(st.sampled_from(FILES))

    def changed(value: Any) -> Any:
        for _ in range(draw(st.integers(1, 3))):
            where = draw(st.sampled_from(list(paths(value))))
            value = set_to(
                value, where, draw(json_values | (st.just(...) if where else json_values))
            )
        return value

    change(name, changed)


LIMIT = most_bytes()
