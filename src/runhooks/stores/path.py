"""``StorePath``, a ``Path`` in a store, and ``replacing``: a whole file or none."""

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
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from runhooks.stores.backend import Buffer, StoredObject
from runhooks.stores.interruption import interrupting
from runhooks.stores.store import Store, default_policy
from runhooks.stores.urls import is_url, normal, top_of

_WINDOW_BYTES = 8 << 20
_MOST_AT_ONCE = 16  # objects read ahead


class ObjectStatus(NamedTuple):
    """Bytes, and seconds since the epoch."""

    st_size: int
    st_mtime: float


_GAP_BYTES = 64 << 10  # rather read than asked around
_SPAN_BYTES = 8 << 20
_NEAR_BYTES = 1 << 20  # read for a single range


class _Tree:
    """What paths made of one another share; one thread at a time reads ahead."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[str, StoredObject] = {}
        self.lock = threading.Lock()
        self.last: tuple[str, int, BufferedReader] | None = None
        self._read_to: dict[str, int] = {}  # how far each object was read
        self._expected: deque[tuple[str, int, int]] = deque()  # keys and ranges, in order
        self._begun: dict[str, tuple[int, Future[bytes]]] = {}
        self._threads: ThreadPoolExecutor | None = None

    def expect(self, objects: Iterable[tuple[str, int]]) -> None:
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
            content = self.store.read(key, start, end)
        self._read_to[key] = max(start + len(content), self._read_to.get(key, 0))
        return content

    def _begin(self) -> None:
        while self._expected and len(self._begun) < _MOST_AT_ONCE:
            key, begin, end = self._expected.popleft()
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, "runhooks-read-ahead")
            self._begun[key] = begin, self._threads.submit(self.store.read, key, begin, end)
        if not self._expected and self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None


class StorePath:
    """A place in a store: an object, or what is below a name, used as a ``Path``.

    A folder is there as long as an object is in it. What ``files`` has listed keeps its size until
    it is listed again, by one thread at a time, also for paths made of this one.
    """

    __slots__ = ("_tree", "key")

    def __init__(self, url: str) -> None:
        top, self.key = top_of(normal(url))
        self._tree = _Tree(Store(top, default_policy()))

    def unlisted(self) -> StorePath:
        """Return the same place, of which nothing was listed yet."""
        path = self._at(self.key)
        path._tree = _Tree(self.store)
        return path

    def _at(self, key: str) -> StorePath:
        path = StorePath.__new__(StorePath)
        path._tree, path.key = self._tree, key
        return path

    def __str__(self) -> str:
        return self.store.url_of(self.key)

    __fspath__ = __str__

    def __repr__(self) -> str:
        return f"StorePath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and str(self) == str(other)

    def __lt__(self, other: StorePath) -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        return hash(self.key)

    def __truediv__(self, name: str) -> StorePath:
        return self._at(str(PurePosixPath(self.key, name)))

    @property
    def store(self) -> Store:
        return self._tree.store

    @property
    def name(self) -> str:
        return str(self).rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> StorePath:
        return self._at(self.key.rpartition("/")[0])

    def with_name(self, name: str) -> StorePath:
        return self.parent / name

    def relative_to(self, folder: Path | StorePath) -> PurePosixPath:
        if isinstance(folder, Path):
            raise ValueError(f"{self} is not in {folder}, which is on this machine")
        return PurePosixPath(self.key or ".").relative_to(PurePosixPath(folder.key or "."))

    def resolve(self) -> StorePath:
        return self

    def is_file(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        return self.files() not in ([], [self])

    def exists(self) -> bool:
        return bool(self.files())

    def stat(self) -> ObjectStatus:
        found = self._tree.known.get(self.key)
        if found is None:
            if not self.key:
                raise FileNotFoundError(f"{self} is no object")
            found = self.store.stat(self.key)
        return ObjectStatus(found.size, found.modified)

    def files(self) -> list[StorePath]:
        """List the objects below it, at any depth, sorted; of an object, itself."""
        known, below = self._tree.known, f"{self.key}/" if self.key else ""
        for key in [key for key in known if key == self.key or key.startswith(below)]:
            del known[key]
        found = self.store.objects(self.key)
        if not found and self.key:
            with suppress(FileNotFoundError):
                found = [self.store.stat(self.key)]
        known.update((it.key, it) for it in found)
        return [self._at(it.key) for it in found]

    def iterdir(self) -> Iterator[StorePath]:
        below = (path.relative_to(self).parts for path in self.files() if path != self)
        return (self / name for name in dict.fromkeys(parts[0] for parts in below))

    def expect(self, reads: Iterable[StorePath]) -> None:
        """Prepare to read the new bytes of ``reads``, listed before, in this order."""
        known = self._tree.known
        self._tree.expect((path.key, known[path.key].size) for path in reads)

    def open(self, ahead_bytes: int = 0) -> BufferedReader:
        """Open the object; ``ahead_bytes`` more than asked for are read at once."""
        return self._opened(self.store.read, ahead_bytes)

    def open_expected(self) -> BufferedReader:
        """Open the object to read it to the end, as told to ``expect``."""
        return self._opened(self._tree.read, _WINDOW_BYTES)

    def _opened(self, read: Callable[[str, int, int], bytes], ahead_bytes: int) -> BufferedReader:
        from fsspec.spec import AbstractBufferedFile

        size = self.stat().st_size
        file = AbstractBufferedFile(None, "", block_size=ahead_bytes, size=size)
        file.cache.fetcher = partial(read, self.key)
        return cast(BufferedReader, file)

    def read_bytes(self) -> bytes:
        return self.store.read(self.key)

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: Buffer) -> None:
        self.store.put(self.key, content)
        self._tree.known.pop(self.key, None)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of the object in several ranges, sorted, read several at a time."""
        if len(ranges) == 1:
            return [self._read_next(*ranges[0])]
        merge = import_module("fsspec.utils").merge_offset_ranges
        places = map(list, zip(*ranges, strict=True))
        _, begins, ends = merge([""] * len(ranges), *places, _GAP_BYTES, _SPAN_BYTES)
        spans = self.store.read_ranges(self.key, zip(begins, ends, strict=True))
        contents = []
        for begin, end in ranges:
            at = bisect.bisect_right(begins, begin) - 1
            contents.append(spans[at][begin - begins[at] : end - begins[at]])
        return contents

    def _read_next(self, begin: int, end: int) -> bytes:
        """The bytes of a range, close to which the next one often is."""
        tree, size = self._tree, self.stat().st_size
        with tree.lock:
            if tree.last is None or tree.last[:2] != (self.key, size):
                tree.last = self.key, size, self.open(_NEAR_BYTES)
            *_, file = tree.last
            file.seek(begin)
            return file.read(end - begin)


AnyPath: TypeAlias = Path | StorePath


def path_of(place: str) -> AnyPath:
    return StorePath(place) if is_url(place) else Path(place)


_numbers = itertools.count()


@contextmanager
def replacing(path: AnyPath) -> Iterator[Path]:
    """Give a path on this machine whose file replaces ``path`` when the block succeeds.

    Pipes, devices, and files in folders that take no other are written directly.
    """
    try:
        with _part(path) as part:
            yield part
    except OSError as error:
        if error.errno is not None and error.filename is None:  # as of a full disk
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
