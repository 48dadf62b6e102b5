"""What a disk can do to an event file, and a kill to a process that writes one."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import event_pb2

from runhooks.summary import FileWriter

RECORD_BYTES = 60  # of a scalar of these tests, at most

WRITE = """
import itertools, sys, threading
from runhooks.summary import FileWriter
writer = FileWriter(sys.argv[1])
begun = threading.Barrier(9)
def write(thread):
    begun.wait()
    step = 0
    while True:
        step += 1
        writer.scalar(f"thread {thread}", step, step)
        if step % 100 == 0:
            writer.scalars({f"of {thread}": step}, step)
        if step % 1000 == 0:
            writer.flush()
for thread in range(8):
    threading.Thread(target=write, args=(thread,), daemon=True).start()
begun.wait()
"""


def events(folder: Path) -> list[event_pb2.Event]:
    """What TensorBoard's loader reads, which stops at a record that is damaged."""
    (path,) = folder.glob("*.tfevents.*")
    payloads = RawEventFileLoader(str(path), detect_file_replacement=False).Load()
    return [event_pb2.Event.FromString(payload) for payload in payloads]


def steps_by_tag(folder: Path) -> dict[str, list[int]]:
    steps = defaultdict(list)
    for event in events(folder):
        for value in event.summary.value:
            assert value.simple_value == event.step
            steps[value.tag].append(event.step)
    return steps


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def start(script: str, folder: Path, started: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    started.append(process)
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
def test_what_was_flushed_survives_a_kill_while_eight_threads_write(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    script = (
        WRITE
        + """
for count in itertools.count(1):
    writer.scalar("mark", count, count)
    writer.flush()
    print(count, flush=True)
"""
    )
    process = start(script, tmp_path, started)
    assert process.stdout is not None
    flushed = [int(process.stdout.readline()) for _ in range(5)][-1]
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=60) == -signal.SIGKILL
    found = steps_by_tag(tmp_path)
    assert found.pop("mark")[:flushed] == list(range(1, flushed + 1))
    threads = {tag: steps for tag, steps in found.items() if tag.startswith("thread")}
    assert len(threads) == 8
    for steps in threads.values():  # not one is missing before the last one there
        assert steps == list(range(1, len(steps) + 1))


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
def test_what_nobody_flushes_is_written_nevertheless(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    script = """
import sys, threading
from runhooks.summary import FileWriter
writer = FileWriter(sys.argv[1])
writer.scalar("loss", 1, 1)
print("added", flush=True)
threading.Event().wait()
"""
    process = start(script, tmp_path, started)
    assert process.stdout is not None
    assert process.stdout.readline() == "added\n"
    while "loss" not in steps_by_tag(tmp_path):
        assert process.poll() is None
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert steps_by_tag(tmp_path) == {"loss": [1]}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_has_room_again_is_written_on(small_disk: Path) -> None:
    writer = FileWriter(small_disk)
    (small_disk / "filler").write_bytes(bytes(60 << 10))
    for step in range(1, 5000):
        writer.scalar("loss", step, step)
    with pytest.raises(OSError, match="No space"):
        writer.flush()
    (small_disk / "filler").unlink()
    writer.scalar("loss", 5000, 5000)
    writer.close()
    *written, last = steps_by_tag(small_disk)["loss"]
    assert written == list(range(1, len(written) + 1))
    assert last == 5000


@pytest.mark.parametrize("max_queue", [100, 100_000])
def test_the_error_of_a_full_disk_is_raised_once_and_counts_all_that_was_added(
    small_disk: Path, max_queue: int
) -> None:
    writer = FileWriter(small_disk, max_queue=max_queue)
    added = 0

    def write() -> None:
        nonlocal added
        for step in range(1, 5000):
            writer.scalar("loss", step, step)
            added += 1
        writer.flush()

    with pytest.raises(OSError, match="No space") as raised:
        write()
    writer.close()
    written = steps_by_tag(small_disk)["loss"]
    assert written == list(range(1, len(written) + 1))
    assert f"lost {added - len(written)} items" in str(raised.value)


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files there")
def test_a_disk_that_is_full_at_any_byte_leaves_all_whole_records(tmp_path: Path) -> None:
    script = """
import os, resource, signal, sys
from pathlib import Path
from runhooks.events import Event, read_records
from runhooks.summary import FileWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
def records(path):
    with path.open("rb") as file:
        yield from read_records(file, str(path))
for size in range(100, 300, 4):
    run = folder / str(size)
    writer = FileWriter(run)
    (path,) = run.iterdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    for step in range(1, 9):
        writer.scalar("loss", step, step)
        writer.add_event(Event(0.0, step, summary=bytes(step)))
    try:
        writer.close()
    except OSError as error:
        lost = int(error.strerror.split()[-2])
    else:
        raise AssertionError("nothing was raised")
    lengths = [len(record) + 16 for record in records(path)]
    assert lost == 17 - len(lengths), (size, lost)
    assert sum(lengths) == path.stat().st_size <= size
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with (folder / "sizes").open("a") as file:
        print(size, sum(lengths), file=file)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    subprocess.run(command, timeout=60, check=True)
    sizes = [map(int, line.split()) for line in (tmp_path / "sizes").read_text().splitlines()]
    assert len(sizes) == 50
    assert all(limit - size < 2 * RECORD_BYTES for limit, size in sizes)


def test_a_disk_that_stays_full_neither_hangs_nor_keeps_the_writer_open(small_disk: Path) -> None:
    writer = FileWriter(small_disk, max_queue=100)
    (small_disk / "filler").write_bytes(bytes(56 << 10))
    told = 0
    for step in range(1, 3_000):
        try:
            writer.scalar("loss", step, step)
        except OSError:
            told += 1
    try:
        writer.close()
    except OSError:
        told += 1
    assert told > 0
    assert writer.closed
    found = steps_by_tag(small_disk).get("loss", [])
    assert found == sorted(set(found))


def test_a_directory_that_was_removed_is_an_error_and_can_be_come_back_to(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    writer = FileWriter(folder)
    writer.scalar("loss", 1, 1)
    writer.flush()
    (path,) = folder.iterdir()
    shutil.rmtree(folder)
    writer.scalar("loss", 2, 2)
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="reopen") as raised:
            writer.flush()
        assert raised.value.filename == str(path)
        assert "lost 1 item" in str(raised.value)
        writer.scalar("loss", 2, 2)
    with pytest.raises(FileNotFoundError):
        writer.flush()
    writer.reopen()
    writer.scalar("loss", 3, 3)
    writer.close()
    assert steps_by_tag(folder) == {"loss": [3]}


@pytest.mark.skipif(sys.platform == "win32", reason="other rights there")
def test_a_file_that_was_made_read_only_is_written_on(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path)
    (path,) = tmp_path.iterdir()
    path.chmod(stat.S_IRUSR)
    writer.scalar("loss", 1, 1)
    writer.close()
    assert steps_by_tag(tmp_path) == {"loss": [1]}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_the_place_for_the_file_of_a_child_may_be_taken(tmp_path: Path) -> None:
    script = """
import os, shutil, sys
from runhooks.summary import FileWriter
folder = sys.argv[1] + "/run"
writer = FileWriter(folder)
child = os.fork()
if child:
    sys.exit(os.waitpid(child, 0)[1])
shutil.rmtree(folder)
open(folder, "w").close()
writer.scalar("loss", 1, 1)
try:
    writer.close()
except OSError as error:
    print(error, *error.__notes__, sep="\\n", flush=True)
    assert writer.closed
    os._exit(0)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    run = str(tmp_path / "run")
    lost, where = result.stdout.splitlines()
    assert where.startswith("logdir ")
    assert repr(run) in where
    assert f"the event writer of {run!r} lost 1 item" in lost
