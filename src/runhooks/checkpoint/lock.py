"""One process at a time saves checkpoints in a directory; in a store, the one that began last."""

from __future__ import annotations

import gc
import logging
import os
import re
import socket
import threading
import time
import weakref
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runhooks import clock
from runhooks.checkpoint.files import place_of, printable
from runhooks.ranks import current_group
from runhooks.stores import RetryPolicy, is_url, joined
from runhooks.stores.path import StorePath

_log = logging.getLogger("runhooks")

CLAIMS = ".chief"
_CLAIM = re.compile(r"[0-9]{12}-[0-9a-f]{16}")
_RELEASING = RetryPolicy(secs=5)


class Claim:
    """A claim to a directory of a store, taken over from whoever had it."""

    def __init__(self, place: StorePath) -> None:
        self.place = place
        self.users = 0
        earlier = self._names()
        number = int(earlier[-1].partition("-")[0]) + 1 if earlier else 1
        self._name = f"{number:012d}-{os.urandom(8).hex()}"
        if earlier:
            _log.info("taking %s over from %s", printable(place), self._owner(earlier[-1]))
        place.store.put(self._key(self._name), _this_process().encode())
        place.store.delete(map(self._key, earlier))

    def is_held(self) -> bool:
        """Whether this process has made it, and not its parent."""
        return _claims.get(self.place) is self

    def check(self) -> None:
        names = self._names()
        if self._name in names[-1:]:
            return
        owner = self._owner(names[-1]) if names else "another process, which has ended,"
        raise RuntimeError(
            f"{owner} has begun to save checkpoints in {str(self.place)!r} after this one: let "
            "one process at a time save in a directory"
        )

    def leave(self) -> None:
        with _claiming:
            self.users -= 1
            if self.users or not self.is_held():
                return
            del _claims[self.place]
        with suppress(OSError):
            self.place.store.with_retry(_RELEASING).delete([self._key(self._name)])

    def _key(self, name: str) -> str:
        return (self.place / CLAIMS / name).key

    def _names(self) -> list[str]:
        listed = self.place.store.objects((self.place / CLAIMS).key)
        return sorted(filter(_CLAIM.fullmatch, (it.key.rpartition("/")[2] for it in listed)))

    def _owner(self, name: str) -> str:
        try:
            content = self.place.store.read(self._key(name))
        except OSError:
            return "another process"
        return printable(content.decode(errors="replace"))


_claims: dict[StorePath, Claim] = {}


def _claim_of(place: StorePath) -> Claim:
    with _claiming:
        if (held := _claims.get(place)) is None:
            held = _claims[place] = Claim(place)
        held.users += 1
        return held


def check_claim(directory: StorePath) -> None:
    """Raise RuntimeError if this process has lost its claim."""
    if (held := _claims.get(directory)) is not None:
        held.check()


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


_NAME = ".chief.lock"
_MOST_OWNER_BYTES = 1024
_OWNER = re.compile(r"process (?P<pid>[0-9]{1,9}) on (?P<host>.+)")
_DYING_SECS = 10  # that a child that was just being forked may take to let go


@dataclass
class _LockedFile:
    """``descriptor``: -1 once released."""

    path: Path
    descriptor: int
    users: int = 1

    def is_held(self) -> bool:
        return self.descriptor >= 0 and _is_at(self.path, self.descriptor)

    def leave(self) -> None:
        with _guard:
            self.users -= 1
            if self.users or self.descriptor < 0:
                return
            with suppress(OSError):
                if self.is_held():
                    self.path.unlink()
            os.close(self.descriptor)
            self.descriptor = -1


_guard = threading.RLock()  # the collector may end a user in it
_claiming = threading.Lock()  # for which no collector waits
_locked: dict[str, _LockedFile] = {}  # by the real path of the directory
_sole: weakref.WeakValueDictionary[str, DirectoryLock] = weakref.WeakValueDictionary()


class DirectoryLock:
    """A lock on a directory of checkpoints, shared within this process except by ``sole`` users.

    Of a group, the chief alone takes it. It ends with the process. A directory in a store is
    claimed, unless ``claims`` is False.
    """

    def __init__(
        self, directory: str | os.PathLike[str], claims: bool = True, sole: bool = False
    ) -> None:
        self._directory = place_of(directory) if claims or not is_url(directory) else None
        self._url = joined(os.fspath(directory)) if is_url(directory) else None
        self._claim: Claim | None = None
        self._file: _LockedFile | None = None
        self._leave: weakref.finalize[[], DirectoryLock] | None = None
        self._sole = sole

    def acquire(self) -> None:
        """Take the lock, creating the directory; do nothing if it is held here already.

        Raises RuntimeError if another process or sole user holds it, OSError.
        """
        if self._file is not None and self._file.is_held():
            return
        if not current_group().is_chief:
            return
        if self._sole:
            self._enter_alone()
        try:
            self._take()
        except BaseException:
            self._leave_alone()
            raise

    def release(self) -> None:
        self._leave_alone()
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.leave()
        self._leave_file()

    def _take(self) -> None:
        if isinstance(self._directory, StorePath):
            if self._claim is None or not self._claim.is_held():
                self._claim = _claim_of(self._directory)
            return
        if self._directory is None:
            return
        try:
            import fcntl
        except ImportError:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        deadline = clock.monotonic() + _DYING_SECS
        while True:
            try:
                self._take_file(fcntl, self._directory)
                return
            except BlockingIOError as error:
                owner = str(error)
                if clock.monotonic() >= deadline or not _has_ended(owner):
                    raise RuntimeError(
                        f"another process saves checkpoints in {str(self._directory)!r}: "
                        f"{owner!r}. Stop it, give another directory, or pass is_chief=False in "
                        "all processes of a training but one"
                    ) from None
            time.sleep(0.01)

    def _take_file(self, fcntl: Any, directory: Path) -> None:
        key = os.path.realpath(directory)
        with _guard:
            self._leave_file()
            file = _locked.get(key)
            if file is not None:
                file.users += 1  # at once: the collector may end its last user
            if file is not None and not file.is_held():
                file.leave()
                file = None
            if file is None:
                file = _lock_file(fcntl, directory)
                if file is None:
                    return
                _locked[key] = file
        self._file = file
        # Not __del__, which may be called when the modules are gone.
        self._leave = weakref.finalize(self, file.leave)

    def _leave_file(self) -> None:
        self._file = None
        if self._leave is not None:
            self._leave()

    def _enter_alone(self) -> None:
        key = self._url or os.path.realpath(str(self._directory))
        with _guard:
            if _sole.get(key, self) is not self:
                gc.collect()  # of a session that was dropped
            if _sole.setdefault(key, self) is self:
                return
        raise RuntimeError(
            f"another session of this process saves checkpoints in {key!r}: close it "
            "first, or give another directory"
        )

    def _leave_alone(self) -> None:
        with _guard:
            for key in [key for key, it in _sole.items() if it is self]:
                del _sole[key]


def _has_ended(owner: str) -> bool:
    found = _OWNER.fullmatch(owner)
    return (
        found is not None
        and found["host"] == socket.gethostname()
        and not is_alive(int(found["pid"]))
    )


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _lock_file(fcntl: Any, directory: Path) -> _LockedFile | None:
    """Raises BlockingIOError, with the name of the owner, if it is locked."""
    path = directory / _NAME
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o666)
        with ExitStack() as undo:
            undo.callback(os.close, descriptor)
            try:
                # Not lockf, whose lock ends when anybody here has read the file.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                owner = os.pread(descriptor, _MOST_OWNER_BYTES, 0).decode("utf-8", "replace")
                raise BlockingIOError(owner.strip() or "unknown") from None
            except OSError as error:
                _log.info("%s cannot be locked: %s", directory, error)
                return None
            if not _is_at(path, descriptor):
                continue  # just removed
            with suppress(OSError):  # of a full disk
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{_this_process()}\n".encode(), 0)
            undo.pop_all()
            return _LockedFile(path.absolute(), descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _forget_in_child() -> None:
    """Let go of the parent's locks, whose open files a forked child shares."""
    global _guard, _claiming
    _guard, _claiming = threading.RLock(), threading.Lock()  # which the parent may hold
    for file in _locked.values():
        if file.descriptor >= 0:
            os.close(file.descriptor)
            file.descriptor = -1
    _locked.clear()
    _claims.clear()
    _sole.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
