"""The command, run as users run it: piped, and in a terminal that pyte emulates."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyte
import pytest

from runhooks import summary
from runhooks.cli import main
from runhooks.events import Event, SessionLog, SessionStatus, frame

# The process takes the terminal that it is started in, so that Ctrl-C there reaches it.
_IN_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from runhooks.cli import main
main()
"""
_UNWANTED = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONIOENCODING"}
_WAIT_SECS = 60
_LINES_KEPT = 500  # more than the terminal has: what scrolls out of it is looked at as well
START_TIME = 1_700_000_000.0


def _environment(**variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    return {**inherited, "TERM": "xterm-256color", "TZ": "UTC", **variables}


class Terminal:
    """The command in a terminal of so many ``columns`` and 24 lines.

    ``stdout``: where its results go, if not into the terminal. ``first``: Python to be run first.
    """

    def __init__(
        self,
        *arguments: str | Path,
        columns: int = 80,
        stdout: Any = None,
        first: str = "",
        **variables: str,
    ) -> None:
        self.sent = b""
        self._screen = pyte.Screen(columns, _LINES_KEPT)
        self._stream = pyte.ByteStream(self._screen)
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", first + _IN_TERMINAL, *map(str, arguments)],
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            env=_environment(**variables),
            start_new_session=True,
        )
        os.close(theirs)

    @property
    def lines(self) -> list[str]:
        """What it shows, without the empty lines at the end."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().split("\n")

    def wait_for(self, text: str) -> None:
        """Return when ``text`` is to be seen."""
        while not any(text in line for line in self.lines):
            assert self._read(), f"{text!r} never came: {self.lines}"

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def finish(self) -> int:
        """Return the exit status, when the command has ended."""
        while self._read():
            pass
        return self.process.wait(_WAIT_SECS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._ours], [], [], _WAIT_SECS)
        assert ready, f"nothing comes any more: {self.lines}"
        data = b""
        with suppress(OSError):  # nobody has the other end open any more
            data = os.read(self._ours, 1 << 16)
        self._stream.feed(data)
        self.sent += data
        return data


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Starts the command in a terminal."""
    terminals = []

    def start(*arguments: str | Path, **options: Any) -> Terminal:
        terminals.append(Terminal(*arguments, **options))
        return terminals[-1]

    yield start
    for it in terminals:
        it.close()


class Ended(NamedTuple):
    """What came of a command that was not in a terminal."""

    status: int
    out: str
    errors: str


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Ended]]:
    """Runs the command, in this process, which warns of nothing and has no terminal."""

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["runhooks", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, *capsys.readouterr())

    on_broken_pipe = signal.getsignal(signal.SIGPIPE)
    for name in _UNWANTED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield run
    monkeypatch.undo()
    time.tzset()
    signal.signal(signal.SIGPIPE, on_broken_pipe)


@pytest.fixture
def start_piped() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the command with its output piped."""
    processes = []

    def start(*arguments: str | Path, **variables: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "runhooks.cli", *map(str, arguments)]
        pipe, environment = subprocess.PIPE, _environment(**variables)
        processes.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


class RunFile:
    """An event file that grows: a step a second from ``START_TIME`` on."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.path = directory / "events.out.tfevents.1700000000.host"
        self._add(Event(START_TIME, file_version="brain.Event:2"))

    def add(self, step: int, *others: summary.Value, **scalars: float) -> RunFile:
        """Add what is written at ``step``; in a tag ``__`` stands for ``/``."""
        values = [
            summary.scalar_value(tag.replace("__", "/"), value) for tag, value in scalars.items()
        ]
        content = summary.Summary([*values, *others])
        return self._add(Event(START_TIME + step, step, summary=content))

    def hparams(self, **hparams: Any) -> RunFile:
        """Add the hyper-parameters of the run."""
        values = summary.hparams_values(hparams, {})
        return self._add(Event(START_TIME, summary=summary.Summary(values)))

    def start(self, step: int, wall_time: float) -> RunFile:
        """Add that a session starts at ``step``."""
        log = SessionLog(SessionStatus.START)
        return self._add(Event(wall_time, step, session_log=log))

    def append(self, other: RunFile) -> RunFile:
        """Add all that is in ``other``, at once."""
        return self._write(other.path.read_bytes())

    def _add(self, event: Event) -> RunFile:
        return self._write(frame(event.SerializeToString()))

    def _write(self, records: bytes) -> RunFile:
        with self.path.open("ab") as file:
            file.write(records)
        return self


@pytest.fixture
def run_file(tmp_path: Path) -> Callable[[str], RunFile]:
    """Makes an event file in a directory inside ``tmp_path``."""
    return lambda name: RunFile(tmp_path / name)
