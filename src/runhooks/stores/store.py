"""``Store``: the objects below one URL; ``RetryPolicy``."""

from __future__ import annotations

import copy
import errno
import logging
import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TypeVar

from runhooks import arguments, clock
from runhooks.stores import interruption
from runhooks.stores.backend import (
    AnyResult,
    Backend,
    Buffer,
    StoredObject,
    as_os_error,
    forget_file_system,
    in_thread,
    is_transient,
    lacks_credentials,
)
from runhooks.stores.urls import is_url, joined, normal, top_of

_log = logging.getLogger("runhooks")


@dataclass(frozen=True)
class RetryPolicy:
    """How long to repeat a request that a store could not answer.

    Requests are repeated after 503 and similar answers, lost connections, and if there is no
    answer. Errors that a retry cannot change, such as denied access, are raised immediately.

    Args:
        secs: For how long tries may begin, from the first failure after the last answer. 0: one
            try.
        first_wait_secs: The wait before the second try. Each further wait doubles, less a random
            part of at most half.
        longest_wait_secs: The longest wait.

    Raises:
        TypeError, ValueError: An argument is wrong.
    """

    secs: float = 300
    first_wait_secs: float = 0.1
    longest_wait_secs: float = 20

    def __post_init__(self) -> None:
        arguments.given(**vars(self))
        arguments.not_negative(secs=self.secs)
        arguments.positive(
            first_wait_secs=self.first_wait_secs, longest_wait_secs=self.longest_wait_secs
        )


_INITIAL = RetryPolicy()
_UNTIL_THE_FIRST_ANSWER = RetryPolicy(secs=10)

_default = _INITIAL


def default_policy() -> RetryPolicy:
    """Return the policy of stores that are opened without one: of 300 s, unless it was set."""
    return _default


def set_retry_policy(policy: RetryPolicy) -> None:
    """Set the policy of every store that is opened without one."""
    global _default
    arguments.given(policy=policy)
    arguments.instance(RetryPolicy, policy=policy)
    _default = policy


class _Patience:
    """Since when a store has failed; without locks, for a signal handler may ask it."""

    def __init__(self) -> None:
        self.has_answered = False
        self._answered_at = clock.monotonic()
        self._failing_since = math.inf

    def answered(self) -> None:
        self._failing_since = math.inf
        self._answered_at = clock.monotonic()
        self.has_answered = True

    def failed(self, since: float) -> None:
        self._failing_since = min(self._failing_since, max(since, self._answered_at))

    def left(self, secs: float, since: float) -> float:
        """How long a request first tried at ``since`` is repeated, if ``secs`` in all."""
        if self._answered_at < interruption.interrupted_at():  # until the store answers
            return 0.0
        return secs - (clock.monotonic() - min(since, self._failing_since))


_known: dict[str, _Patience] = {}  # by scheme and bucket
# Not the global generator, which a training may use.
_jitter = random.Random()
_WORTH_A_WARNING_SECS = 1
_SILENT_SECS = 10.0
_SLOW_BYTES_A_SEC = 1 << 20


def _ask(
    request: Callable[[], AnyResult],
    url: str,
    policy: RetryPolicy,
    patience: _Patience,
    nbytes: int,
) -> AnyResult:
    """The result of ``request()``, which moves ``nbytes``; OSError if it fails in the end."""
    if policy is _INITIAL and not patience.has_answered:
        policy = _UNTIL_THE_FIRST_ANSWER
    since, wait_secs = clock.monotonic(), policy.first_wait_secs
    with interruption.interrupting():
        while True:
            known = patience.has_answered
            outcome = _outcome(request, url, nbytes, math.inf if known else policy.secs)
            error = outcome.exception()
            if error is None:
                patience.answered()
                return outcome.result()
            if isinstance(error, ImportError) or not isinstance(error, Exception):
                raise error
            if not is_transient(error):
                if patience.has_answered or not lacks_credentials(error):
                    patience.answered()
                raise as_os_error(error, url) from error
            if policy.secs:
                patience.failed(since)
            pause = wait_secs * _jitter.uniform(0.5, 1)
            left = patience.left(policy.secs, since) - pause
            if left < 0:
                raise as_os_error(error, url) from error
            level = logging.DEBUG if pause < _WORTH_A_WARNING_SECS else logging.WARNING
            _log.log(level, "%s; trying again for %.0f s", as_os_error(error, url), left)
            interruption.sleep(pause)
            wait_secs = min(2 * wait_secs, policy.longest_wait_secs)


def _outcome(
    request: Callable[[], AnyResult], url: str, nbytes: int, limit_secs: float
) -> Future[AnyResult]:
    """What became of ``request()``: an error if nothing is heard for ``limit_secs`` and a while.

    It has its own thread: the libraries beneath may hold a Ctrl-C back for minutes.
    """
    why, since = "the program was interrupted before the store answered", clock.monotonic()
    silent_secs, is_mentioned = _SILENT_SECS + nbytes / _SLOW_BYTES_A_SEC, False
    outcome: Future[AnyResult] | None = None
    while interruption.secs_left():
        outcome = outcome or in_thread(request, "runhooks-request")
        wait([outcome], min(interruption.LOOK_SECS, interruption.secs_left()))
        if outcome.done():
            return outcome
        silent = clock.monotonic() - since
        if silent > limit_secs + silent_secs:
            why = f"no answer for {silent:.0f} s"
            break
        if not is_mentioned and silent > silent_secs:
            is_mentioned = True
            _log.warning("%s: no answer for %.0f s; waiting for it", url, silent_secs)
    outcome = Future()
    outcome.set_exception(TimeoutError(errno.ETIMEDOUT, why, url))
    return outcome


AnyArgument = TypeVar("AnyArgument")

# Each request reads an eighth of what is wanted, within these limits.
_LEAST_RANGE_BYTES, _MOST_RANGE_BYTES = 8 << 20, 64 << 20
_MOST_AT_ONCE = 8


def open_store(url: str | os.PathLike[str], retry: RetryPolicy | None = None) -> Store:
    """Return the store of the objects below ``url``. No request is made yet.

    Args:
        url: Such as ``s3://bucket/run``.
        retry: How long requests are repeated. None: as ``default_policy`` says; if it was
            not set, 10 s until the store has answered once.

    Raises:
        ImportError: The library for the scheme is not installed.
        ValueError: ``url`` is a path, or its scheme is unknown.
        OSError: The library's configuration is wrong.
    """
    if not is_url(url):
        raise ValueError(f"url must begin with a scheme such as s3://, got {os.fspath(url)!r}")
    text = normal(os.fspath(url))
    return Store(text, default_policy() if retry is None else retry)


class Store:
    """The objects below one URL, by keys relative to it, with ``/`` between their parts.

    May be used in several threads, and in a forked child. Failures raise the OSError of a disk,
    with the URL as its ``filename``.
    """

    def __init__(self, url: str, retry: RetryPolicy) -> None:
        #: Where the objects are.
        self.url = url
        self._retry = retry
        # Now: a Ctrl-C may come before the first request.
        self._patience = _known.setdefault(top_of(url)[0], _Patience())
        self._open()

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def with_retry(self, retry: RetryPolicy) -> Store:
        """Return the same store with another policy."""
        other = copy.copy(self)
        other._retry = retry
        return other

    def url_of(self, key: str) -> str:
        """Return the URL of the object ``key``."""
        return joined(self.url, key)

    def put(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        """Create or replace the object ``key``, completely or not at all, large ones in parts."""
        pieces = [data] if not isinstance(data, Sequence) or isinstance(data, _BYTES) else data
        self._call(key, lambda backend: backend.put(key, pieces), sum(map(len, pieces)))

    def create(self, key: str, data: bytes) -> None:
        """Create the object ``key``; of several processes at the same time, one succeeds.

        ``data`` must differ from theirs: where an answer was lost, it tells whose the object is.
        Raises FileExistsError if another is there.
        """
        try:
            self._call(key, lambda backend: backend.create(key, data))
        except FileExistsError:
            # The answer to an earlier try may have been lost.
            if self.stat(key).size != len(data) or self.read(key) != data:
                raise

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the content of the object ``key``, or its bytes from ``start`` to ``end``."""
        if end is not None:
            return self._read_range(key, start, end)
        return self._call(key, lambda backend: backend.read(key, start, None))

    def read_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of the object ``key`` between several starts and ends, in parallel."""
        return _together(lambda where: self._read_range(key, *where), list(ranges))

    def read_into(self, key: str, into: memoryview, start: int = 0) -> None:
        """Fill ``into`` with the bytes of the object ``key`` from ``start`` on."""
        into = into.cast("B")
        size = len(into)
        part = min(max(_LEAST_RANGE_BYTES, -(-size // _MOST_AT_ONCE)), _MOST_RANGE_BYTES)

        def fill(first: int) -> None:
            last = min(first + part, size)
            into[first:last] = self._read_range(key, start + first, start + last)

        _together(fill, range(0, size, part))

    def stat(self, key: str) -> StoredObject:
        """Return the size and the time of the object ``key``."""
        return self._call(key, lambda backend: backend.stat(key))

    def objects(self, folder: str = "") -> list[StoredObject]:
        """Return the objects whose keys begin with ``folder/``, by key; all of them for ``""``."""
        found = self._call(folder, lambda backend: backend.objects(folder))
        # Some mark folders by empty objects.
        below = f"{folder}/" if folder else ""
        names = ((it, it.key.removeprefix(below)) for it in found if it.key.startswith(below))
        return sorted(it for it, name in names if name and not name.endswith("/"))

    def folders(self, folder: str = "") -> list[str]:
        """Return the names directly below ``folder`` that have objects below them, sorted."""
        return sorted(self._call(folder, lambda backend: backend.folders(folder)))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects ``keys``; a missing one is no error."""
        arguments.given(keys=keys)
        if listed := [keys] if isinstance(keys, str) else list(keys):
            self._call("", lambda backend: backend.delete(listed))

    def _read_range(self, key: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        content = self._call(key, lambda backend: backend.read(key, start, end), end - start)
        if len(content) != end - start:
            raise OSError(errno.EIO, f"it ends before byte {end}", self.url_of(key))
        return content

    def _open(self) -> None:
        try:
            self._backend = Backend(self.url)
        except (ImportError, ValueError):
            raise
        except Exception as error:
            raise as_os_error(error, self.url) from error
        self._opened_by: int | None = os.getpid()  # None: it is to be opened anew

    def _call(
        self, key: str, request: Callable[[Backend], AnyResult], nbytes: int = 0
    ) -> AnyResult:
        if self._opened_by != os.getpid():  # a forked child has no threads
            self._open()
        url, backend = self.url_of(key), self._backend
        try:
            return _ask(lambda: request(backend), url, self._retry, self._patience, nbytes)
        except PermissionError as error:
            if error.__cause__ is not None and lacks_credentials(error.__cause__):
                self._opened_by = None  # there may be some at the next request
                forget_file_system(self.url)
            raise


_BYTES = (bytes, bytearray, memoryview)


def _together(
    act: Callable[[AnyArgument], AnyResult], items: Sequence[AnyArgument]
) -> list[AnyResult]:
    if len(items) < 2:
        return [act(it) for it in items]
    with interruption.reading_threads(_MOST_AT_ONCE) as threads:
        return list(threads.map(act, items))
