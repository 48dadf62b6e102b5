"""``StorePath``: a place in a store, used as a ``Path``; ``replacing``: a whole file or none."""

from __future__ import annotations

import bisect
import itertools
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from runhooks.stores.backend import Buffer, StoredObject
from runhooks.stores.interruption import interrupting
from runhooks.stores.store import Store, open_top
from runhooks.stores.urls import is_url

if TYPE_CHECKING:
    from runhooks.stores.object_file import ObjectFile


_WINDOW_BYTES = 8 << 20  # of an object that are read at once
_MOST_AT_ONCE = 16  # objects that are read before somebody asks for them


class _ReadAhead:
    """Reads the first new bytes of the objects of ``store`` that are read next, several at a time.

    One thread at a time may use it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read_to: dict[str, int] = {}  # how far each object was read
        self._expected: deque[tuple[str, int, int]] = deque()  # keys and ranges, in order
        self._begun: dict[str, tuple[int, Future[bytes]]] = {}  # where, and what will be there
        self._threads: ThreadPoolExecutor | None = None

    def expect(self, objects: Iterable[tuple[str, int]]) -> None:
        """Prepare to read what is new in ``objects``, keys and sizes in the order of reading."""
        for _, future in self._begun.values():
            future.cancel()
        self._begun = {}
        begins = ((key, self._read_to.get(key, 0), size) for key, size in objects)
        self._expected = deque(
            (key, begin, min(size, begin + _WINDOW_BYTES))
            for key, begin, size in begins
            if begin < size
        )

    def read(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to ``end``, or fewer if they were expected."""
        self._begin()
        begin, future = self._begun.pop(key, (None, None))
        if future is not None and begin == start:
            with interrupting():
                content = future.result()
        else:
            content = self._store.read(key, start, end)
        self._read_to[key] = max(start + len(content), self._read_to.get(key, 0))
        return content

    def _begin(self) -> None:
        """Begin to read what is expected, as much as fits in memory."""
        while self._expected and len(self._begun) < _MOST_AT_ONCE:
            key, begin, end = self._expected.popleft()
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, "runhooks-read-ahead")
            self._begun[key] = begin, self._threads.submit(self._store.read, key, begin, end)
        if not self._expected and self._threads is not None:
            self._threads.shutdown(wait=False)  # when it has read them
            self._threads = None


class ObjectStatus(NamedTuple):
    """The size of an object in bytes, and when it was written, in seconds since the epoch."""

    st_size: int
    st_mtime: float


_GAP_BYTES = 64 << 10  # that are rather read than asked around
_SPAN_BYTES = 8 << 20  # that are read at once
_NEAR_BYTES = 1 << 20  # of what is read for a single range


class _Tree:
    """What the paths that were made of one another share."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ahead = _ReadAhead(store)
        self.known: dict[str, StoredObject] = {}  # as they were listed last
        self.lock = threading.Lock()
        self.last: tuple[str, int, ObjectFile] | None = None  # of which a range was read last


class StorePath:
    """A place in a store: an object, or what is below a name.

    A folder is there as long as there is an object in it. What ``files`` has listed keeps the size
    that it had then, until it is listed again. Paths that come from one another share what was
    listed; one thread at a time may list.

    Args:
        url: Its URL.

    Raises:
        ImportError, ValueError: As ``open_store``.
    """

    __slots__ = ("_key", "_tree")

    def __init__(self, url: str) -> None:
        store, self._key = open_top(url)
        self._tree = _Tree(store)

    def unlisted(self) -> StorePath:
        """Return the same place in the same store, of which nothing was listed yet."""
        path = self._at(self._key)
        path._tree = _Tree(self._tree.store)
        return path

    def _at(self, key: str) -> StorePath:
        path = StorePath.__new__(StorePath)
        path._tree = self._tree
        path._key = key
        return path

    def __str__(self) -> str:
        return self._tree.store.url_of(self._key)

    __fspath__ = __str__

    def __repr__(self) -> str:
        return f"StorePath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and str(self) == str(other)

    def __lt__(self, other: StorePath) -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        return hash(self._key)

    def __truediv__(self, name: str) -> StorePath:
        return self._at(str(PurePosixPath(self._key, name)))

    @property
    def store(self) -> Store:
        """The store that it is in."""
        return self._tree.store

    @property
    def key(self) -> str:
        """What it is called in its store."""
        return self._key

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return str(self).rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> StorePath:
        """The folder that it is in."""
        return self._at(self._key.rpartition("/")[0])

    def with_name(self, name: str) -> StorePath:
        """Return the place of another name in the same folder."""
        return self.parent / name

    def relative_to(self, folder: Path | StorePath) -> PurePosixPath:
        """Return the path from ``folder`` to it. Raises ValueError if it is not inside."""
        if isinstance(folder, Path):
            raise ValueError(f"{self} is not in {folder}, which is on this machine")
        return PurePosixPath(self._key or ".").relative_to(PurePosixPath(folder._key or "."))

    def resolve(self) -> StorePath:
        """Return itself: a store has no links."""
        return self

    def is_file(self) -> bool:
        """Return whether there is an object."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return whether there are objects below it."""
        return self.files() not in ([], [self])

    def exists(self) -> bool:
        """Return whether there is an object, or are objects below it."""
        return bool(self.files())

    def stat(self) -> ObjectStatus:
        """Return the size and the time of the object. Raises FileNotFoundError if there is none."""
        found = self._tree.known.get(self._key)
        if found is None:
            if not self._key:
                raise FileNotFoundError(f"{self} is no object")
            found = self._tree.store.stat(self._key)
        return ObjectStatus(found.size, found.modified)

    def files(self) -> list[StorePath]:
        """List the objects below it, at any depth, sorted; of an object, itself.

        Empty if there is nothing.
        """
        known, below = self._tree.known, f"{self._key}/" if self._key else ""
        for key in [key for key in known if key == self._key or key.startswith(below)]:
            del known[key]
        found = self._tree.store.objects(self._key)
        if not found and self._key:
            with suppress(FileNotFoundError):
                found = [self._tree.store.stat(self._key)]
        known.update((it.key, it) for it in found)
        return [self._at(it.key) for it in found]

    def iterdir(self) -> Iterator[StorePath]:
        """Yield the objects and folders in it."""
        below = (path.relative_to(self).parts for path in self.files() if path != self)
        return (self / name for name in dict.fromkeys(parts[0] for parts in below))

    def expect(self, reads: Iterable[StorePath]) -> None:
        """Prepare to read the new bytes of ``reads``, listed before, in this order."""
        known = self._tree.known
        self._tree.ahead.expect((path._key, known[path._key].size) for path in reads)

    def open(self, ahead_bytes: int = 0) -> ObjectFile:
        """Open the object to read it with so many bytes at once behind those asked for.

        Raises OSError.
        """
        return self._opened(self._tree.store.read, ahead_bytes)

    def open_expected(self) -> ObjectFile:
        """Open the object to read it to the end, as was told to ``expect``. Raises OSError."""
        return self._opened(self._tree.ahead.read, _WINDOW_BYTES)

    def _opened(self, read: Callable[[str, int, int], bytes], ahead_bytes: int) -> ObjectFile:
        from runhooks.stores.object_file import ObjectFile  # it needs fsspec

        return ObjectFile(partial(read, self._key), self.stat().st_size, ahead_bytes)

    def read_bytes(self) -> bytes:
        """Return the content of the object."""
        return self._tree.store.read(self._key)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the text in the object."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: Buffer) -> None:
        """Create or replace the object."""
        self._tree.store.put(self._key, content)
        self._tree.known.pop(self._key, None)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders of their own."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of the object in several ranges, sorted, read several at a time."""
        if len(ranges) == 1:
            return [self._read_next(*ranges[0])]
        merge = import_module("fsspec.utils").merge_offset_ranges
        places = map(list, zip(*ranges, strict=True))
        _, begins, ends = merge([""] * len(ranges), *places, _GAP_BYTES, _SPAN_BYTES)
        spans = self._tree.store.read_ranges(self._key, zip(begins, ends, strict=True))
        contents = []
        for begin, end in ranges:
            at = bisect.bisect_right(begins, begin) - 1
            contents.append(spans[at][begin - begins[at] : end - begins[at]])
        return contents

    def _read_next(self, begin: int, end: int) -> bytes:
        """Return the bytes of a range; the next one that is asked for is often close to it."""
        tree, size = self._tree, self.stat().st_size
        with tree.lock:
            if tree.last is None or tree.last[:2] != (self._key, size):
                tree.last = self._key, size, self.open(_NEAR_BYTES)
            *_, file = tree.last
            file.seek(begin)
            content: bytes = file.read(end - begin)
            return content


#: A file or a folder, on this machine or in a store.
AnyPath: TypeAlias = Path | StorePath


def path_of(place: str) -> AnyPath:
    """Return the path or URL ``place`` as an object."""
    return StorePath(place) if is_url(place) else Path(place)


_numbers = itertools.count()


@contextmanager
def replacing(path: AnyPath) -> Iterator[Path]:
    """Give the path of a file on this machine that replaces ``path`` when the block succeeds.

    A pipe or a device is written to directly, and so is a file in a folder that takes no other. An
    error of the system that names no file, such as of a full disk, names ``path``.
    """
    try:
        with _part(path) as part:
            yield part
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def _part(path: AnyPath) -> Iterator[Path]:
    if isinstance(path, StorePath):
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder, "part")
            yield part
            # Not read as a whole: it may be large.
            content = np.memmap(part, np.uint8, mode="r") if part.stat().st_size else b""
            path.write_bytes(content)
        return
    target = path.resolve()
    is_device = str(path).startswith(("/dev/", "/proc/"))
    is_special = is_device or (path.exists() and not path.is_file())
    if is_special or not os.access(target.parent, os.W_OK):
        yield path
        return
    part = target.with_name(f".runhooks-{os.getpid()}-{next(_numbers)}.part")
    try:
        yield part
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
