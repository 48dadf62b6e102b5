import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.compat.proto import event_pb2

from runhooks.events import Event, flush_all, read_records
from runhooks.events.writing import background
from runhooks.events.writing.event_file import EventFile
from runhooks.summary import FileWriter
from runhooks.testing import FakeClock
from tests.event_files import events_in


class Lazy:
    """A message that notes that it is encoded, and in which thread; it may fail there."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.encoded = threading.Event()

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers' name)
        self.thread = threading.current_thread()
        self.encoded.set()
        if self.error is not None:
            raise self.error
        return b""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[FileWriter]:
    writer = FileWriter(tmp_path)
    yield writer
    writer.close()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("events.out.tfevents.*"))


def steps(path: Path) -> list[int]:
    first, *rest = events_in(path)
    assert first.file_version == "brain.Event:2"
    return [event.step for event in rest]


def scalars(path: Path) -> list[tuple[int, str, float]]:
    with path.open("rb") as file:
        events = [event_pb2.Event.FromString(payload) for payload in read_records(file, str(path))]
    return [
        (event.step, value.tag, value.simple_value)
        for event in events
        for value in event.summary.value
    ]


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_flush_is_a_barrier(tmp_path: Path, writer: FileWriter) -> None:
    (path,) = files(tmp_path)
    for step in range(1, 1000):
        writer.add_event(Event(0.0, step))
        if step % 333 == 0:
            writer.flush()
            assert steps(path) == list(range(1, step + 1))


def test_events_are_written_without_a_flush(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path, flush_secs=0.001)
    message = Lazy()
    writer.add_event(Event(0.0, 1, summary=message))
    assert message.encoded.wait(timeout=30)
    writer.close()
    assert steps(files(tmp_path)[0]) == [1]


@pytest.mark.parametrize("call", ["add", "close"])
def test_a_failed_encoding_reaches_the_next_call(tmp_path: Path, call: str) -> None:
    writer = FileWriter(tmp_path, max_queue=3, flush_secs=0.001)
    error, after = SystemExit("poisoned"), Lazy()
    writer.add_event(Event(0.0, 1))
    with pytest.raises(SystemExit, match="poisoned") as raised:
        writer.add_event(Event(0.0, 2, summary=Lazy(error)))
        writer.add_event(Event(0.0, 3, summary=after))
        assert after.encoded.wait(timeout=30)
        if call != "add":
            getattr(writer, call)()
        for _ in range(5):  # by then the queue is full, and an add waits for the thread
            writer.add_event(Event(0.0, 3))
    assert raised.value is error
    event, lost = raised.value.__notes__
    assert "step 2" in event
    assert repr(str(tmp_path)) in event
    assert lost.endswith("lost 1 item")
    writer.close()  # once is enough
    assert set(steps(files(tmp_path)[0])) in ({1, 3}, {1})


def test_scalars_and_events_are_in_the_file_in_the_order_in_which_they_were_added(
    tmp_path: Path, writer: FileWriter
) -> None:
    expected = []
    for step in range(1, 500):
        writer.scalar("loss", step / 2, step)
        expected.append((step, "loss", step / 2))
        if step % 100 == 0:
            writer.scalars({"rate": 0.5, "t": 2}, step)
            writer.add_event(event_pb2.Event(step=step, summary={"value": [{"tag": "theirs"}]}))
            expected += [(step, "rate", 0.5), (step, "t", 2), (step, "theirs", 0)]
    writer.flush()
    assert scalars(files(tmp_path)[0]) == expected


def test_the_first_of_several_errors_tells_of_the_rest(writer: FileWriter) -> None:
    for reason in ("first", "second", "third"):
        writer.add_event(Event(0.0, summary=Lazy(ValueError(reason))))
    with pytest.raises(ValueError, match="first") as raised:
        writer.flush()
    assert raised.value.__notes__[-1] == ("2 more errors followed; the last is ValueError('third')")


def test_what_waits_for_room_while_the_writer_is_closed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Lazy):
        go_on = threading.Event()

        def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers' name)
            super().SerializeToString()
            self.go_on.wait(timeout=30)
            return b""

    def add() -> None:
        with pytest.raises(RuntimeError, match="closed"):
            writer.add_event(Event(0.0, 3))
        refused.set()

    slow, waits, refused = Slow(), threading.Event(), threading.Event()
    schedule = background.schedule
    writer = FileWriter(tmp_path, max_queue=2, flush_secs=0.001)
    writer.add_event(Event(0.0, 1, summary=slow))
    assert slow.encoded.wait(timeout=30)
    writer.add_event(Event(0.0, 2))  # the queue is full: what is being written counts
    monkeypatch.setattr(background, "schedule", lambda *args, **kw: (waits.set(), schedule(*args)))
    threads = [threading.Thread(target=add)]
    threads[0].start()
    assert waits.wait(timeout=30)
    threads.append(threading.Thread(target=writer.close))
    threads[1].start()
    while not writer.closed:
        pass
    slow.go_on.set()
    for thread in threads:
        thread.join()
    assert refused.is_set()
    assert [steps(path) for path in files(tmp_path)] == [[1, 2]]


def test_flush_all_flushes_every_writer_and_raises_the_first_error(tmp_path: Path) -> None:
    writers = [FileWriter(tmp_path / str(index)) for index in range(4)]
    for index, writer in enumerate(writers):
        error = ValueError(f"poisoned {index}") if index % 2 else None
        writer.add_event(Event(0.0, 5, summary=Lazy(error)))
    with pytest.raises(ValueError, match="poisoned 1") as raised:
        flush_all()
    assert "ValueError('poisoned 3')" in raised.value.__notes__[-1]
    assert [steps(files(tmp_path / str(index))[0]) for index in range(4)] == [[5], [], [5], []]
    flush_all()
    for writer in writers:
        writer.close()


def test_a_signal_handler_may_flush_anywhere(tmp_path: Path) -> None:
    # In place of signals: each line of ours that the main thread is about to execute is
    # interrupted by a flush, as a signal handler may do it.
    script = """
import faulthandler, sys
from runhooks.events import Event
from runhooks.summary import FileWriter
faulthandler.dump_traceback_later(30, exit=True)
flushes = 0
writer = FileWriter(sys.argv[1], max_queue=2)
def interrupt(frame, kind, argument):
    global flushes
    if "runhooks" not in frame.f_code.co_filename:
        return None
    sys.settrace(None)
    writer.flush()
    sys.settrace(interrupt)
    flushes += 1
    return interrupt
sys.settrace(interrupt)
for step in range(1, 4):
    writer.add_event(Event(0.0, step))
    writer.flush()
for step in range(4, 9):
    writer.add_event(Event(0.0, step))
writer.close()
sys.settrace(None)
print(flushes > 50)
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "True\n", "")
    assert [steps(path) for path in files(tmp_path)] == [list(range(1, 9))]


def test_what_is_pending_at_exit_is_written(tmp_path: Path) -> None:
    script = """
import atexit, sys
from runhooks.events import Event
from runhooks.summary import FileWriter
late = FileWriter(sys.argv[1] + "/late")
atexit.register(lambda: late.add_event(Event(0.0, 2)))
late.add_event(Event(0.0, 1))
class Keeper:  # writes when the interpreter is all but gone
    writer = FileWriter(sys.argv[1] + "/last")
    def __del__(self):
        self.writer.reopen()
        self.writer.add_event(Event(0.0, 3))
        self.writer.close()
keeper = Keeper()
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert [steps(path) for path in files(tmp_path / "late")] == [[1, 2]]
    assert [steps(path) for path in files(tmp_path / "last")] == [[3]]


def test_what_fails_at_exit_is_logged(tmp_path: Path) -> None:
    script = """
import sys
from runhooks.events import Event
from runhooks.summary import FileWriter
class Poisoned:
    def SerializeToString(self):
        raise ValueError("poisoned")
FileWriter(sys.argv[1]).add_event(Event(0.0, 1, summary=Poisoned()))
"""
    result = run(script, tmp_path)
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("events were lost as the process ended: ValueError: poisoned; while ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    script = """
import os, sys
from runhooks.events import Event
from runhooks.summary import FileWriter
writer, idle = FileWriter(sys.argv[1]), FileWriter(sys.argv[1] + "/idle")
writer.add_event(Event(0.0, 1))
child = os.fork()
writer.add_event(Event(0.0, 3 if child else 2))
writer.close()
if not child:
    idle.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(steps(path) for path in files(tmp_path)) == [[1, 3], [2]]
    assert len(files(tmp_path / "idle")) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_children_of_multiprocessing_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text("""
from runhooks.events import Event
from runhooks.summary import FileWriter
def add(path):
    global writer
    writer = FileWriter(path)
    writer.add_event(Event(0.0, 2))
""")
    script = """
import multiprocessing, sys
sys.path.insert(0, sys.argv[1])
import child
from runhooks.events import Event
from runhooks.summary import FileWriter
writer = FileWriter(sys.argv[1])
writer.add_event(Event(0.0, 1))
writer.flush()
for method in ("fork", "forkserver"):
    process = multiprocessing.get_context(method).Process(target=child.add, args=(sys.argv[1],))
    process.start()
    process.join()
    assert process.exitcode == 0
"""
    result = run(script, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert [steps(path) for path in files(tmp_path)] == [[1], [2], [2]]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc to count files in")
def test_a_hundred_writers_leave_nothing_behind(tmp_path: Path) -> None:
    FileWriter(tmp_path).close()
    threads, open_files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    for index in range(100):
        writer = FileWriter(tmp_path / str(index % 10))
        writer.add_event(Event(0.0, index))
        writer.close()
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
    assert len(files(tmp_path / "0")) == 10


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_first_record_says_the_version_and_the_time(tmp_path: Path) -> None:
    with FakeClock(wall_start=1_700_000_000.5):
        file = EventFile(str(tmp_path / "new" / "run"))
    file.close()
    assert events_in(file.path) == [Event(1_700_000_000.5, file_version="brain.Event:2")]


def test_the_name_says_when_and_who(tmp_path: Path) -> None:
    with FakeClock(wall_start=1_700_000_000.0):
        EventFile(str(tmp_path), ".mine").close()
    (name,) = names(tmp_path)
    assert name.startswith("events.out.tfevents.1700000000.")
    assert f".{os.getpid()}." in name
    assert name.endswith(".mine")


def test_files_sort_in_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    files = []
    for wall in (1_700_000_000.0, 1_700_000_000.9, 1_700_000_000.9, 1_600_000_000.0, 1_800_000_000):
        with FakeClock(wall_start=wall):
            files.append(EventFile(str(tmp_path)))
    for file in files:
        file.close()
    assert names(tmp_path) == [file.path.name for file in files]


def test_other_files_of_the_folder_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.old").touch()
    (tmp_path / "model.ckpt-9").mkdir()
    with FakeClock(wall_start=1_700_000_000.0):
        file = EventFile(str(tmp_path))
    file.close()
    assert ".1700000000." in file.path.name


def test_a_folder_that_cannot_be_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="logdir") as raised:
        EventFile(str(tmp_path / "file" / "run"))
    assert str(tmp_path / "file") in str(raised.value)
