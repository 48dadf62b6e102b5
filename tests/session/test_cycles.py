"""Sessions opened and closed hundreds of times in one process leave nothing behind."""

import json
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.every_engine,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux"),
]

LAUNCHERS = {"jax": "jax_launcher", "torch": "torch_launcher"}
PROGRAM = Path(__file__).with_name("cycles.py")
CYCLES = 150


def test_many_sessions_leave_no_thread_no_file_and_no_memory(engine, request, tmp_path):
    # In a process of its own: what other tests have left is taken up and let go at any time.
    launcher = request.getfixturevalue(LAUNCHERS.get(engine, "plain_launcher"))
    log = tmp_path / "log"
    process = launcher.start(log, PROGRAM, engine, tmp_path, CYCLES)
    assert launcher.wait(process) == 0, log.read_text()
    held = json.loads(log.read_text().splitlines()[-1])
    before, after = held["before"], held["after"]
    assert after["threads"] <= before["threads"]
    assert after["files"] <= before["files"]
    assert after["objects"] - before["objects"] < CYCLES / 4
    assert after["memory"] - before["memory"] < 4 * 2**20  # jax takes a megabyte now and then
    assert held["recoveries"] >= CYCLES // 11
