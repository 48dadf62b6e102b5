"""Profiles Python: each call in a stretch of time, as a trace for Perfetto or chrome://tracing."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from runhooks import clock

#: How many calls a trace holds, about 25 MB of it; those that begin later are only counted.
MOST_CALLS = 200_000


class _Call:
    __slots__ = ("secs", "start", "thread", "what")

    def __init__(self, what: CodeType | tuple[str, str], thread: int, start: float) -> None:
        self.what = what
        self.thread = thread
        self.start = start
        self.secs: float | None = None  # it has not returned


class PythonProfile:
    """Records the calls of all threads, up to ``most_calls``, from its creation until ``stop``.

    Before Python 3.12 threads that run already are not seen, but for the calling one. Raises
    RuntimeError if a profiler runs in this thread.
    """

    def __init__(self, most_calls: int = MOST_CALLS) -> None:
        if sys.getprofile() is not None:
            raise RuntimeError("another Python profiler is running in this thread")
        self._most_calls = most_calls
        self._calls: list[_Call] = []
        self._stacks: dict[int, list[_Call | None]] = {}
        self._dropped = 0
        self._running = True
        self._before = threading.getprofile()
        self._start = clock.monotonic()
        # Kept: a thread that takes it off in the middle of a call would free what it is calling.
        self._recorder = self._record
        _set_profile(self._recorder, self._recorder)

    def stop(self) -> None:
        """Record no more."""
        _set_profile(self._before, None)
        self._running = False
        self._end = clock.monotonic()

    def write(self, path: Path) -> None:
        """Write the trace to ``path``, in Chrome's trace event format."""
        with path.open("w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit": "ms", "otherData": ')
            file.write(json.dumps({"dropped_calls": self._dropped}))
            file.write(', "traceEvents": [\n')
            file.write(",\n".join(json.dumps(event) for event in self._events()))
            file.write("\n]}\n")

    def _record(self, frame: FrameType, event: str, arg: Any) -> None:
        if not self._running:  # a thread that was started meanwhile
            sys.setprofile(None)
        elif event == "call":
            self._push(frame.f_code)
        elif event == "c_call":
            # Its name and not itself: what it is bound to is not kept alive.
            self._push((getattr(arg, "__qualname__", repr(arg)), _module_of(arg)))
        else:
            stack = self._stacks.get(threading.get_ident())
            call = stack.pop() if stack else None  # None: it began before, or there are too many
            if call is not None:
                call.secs = clock.monotonic() - call.start

    def _push(self, what: CodeType | tuple[str, str]) -> None:
        thread = threading.get_ident()
        call = None
        if len(self._calls) < self._most_calls:
            call = _Call(what, thread, clock.monotonic())
            self._calls.append(call)
        else:
            self._dropped += 1
        self._stacks.setdefault(thread, []).append(call)

    def _events(self) -> Iterator[dict[str, Any]]:
        pid = os.getpid()
        for thread in threading.enumerate():
            if thread.ident in self._stacks:
                named = {"name": thread.name}
                yield {
                    "ph": "M", "name": "thread_name", "pid": pid, "tid": thread.ident, "args": named
                }  # fmt: skip
        for call in self._calls:
            if isinstance(call.what, CodeType):
                name, kind = call.what.co_qualname, "python"
                place = f"{call.what.co_filename}:{call.what.co_firstlineno}"
            else:
                (name, place), kind = call.what, "c"
            secs = self._end - call.start if call.secs is None else call.secs
            yield {
                "ph": "X",
                "name": name,
                "cat": kind,
                "pid": pid,
                "tid": call.thread,
                "ts": round(1e6 * (call.start - self._start), 3),
                "dur": round(1e6 * secs, 3),
                "args": {"at": place},
            }


def start_python_profile(folder: Path, step: int) -> Callable[[], Path]:
    """As ``Engine.start_profile``; the trace is ``<folder>/timeline-<step>.json``."""
    profile = PythonProfile()

    def stop() -> Path:
        profile.stop()
        path = folder / f"timeline-{step}.json"
        profile.write(path)
        return path

    return stop


def _set_profile(for_new_threads: Any, for_others: Any) -> None:
    if sys.version_info >= (3, 12):
        threading.setprofile_all_threads(for_others)
    threading.setprofile(for_new_threads)
    sys.setprofile(for_others)


def _module_of(function: Any) -> str:
    return (
        getattr(function, "__module__", None)
        or type(getattr(function, "__self__", None)).__qualname__
    )
