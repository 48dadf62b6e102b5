"""Sessions opened and closed hundreds of times in one process leave nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.every_engine,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux"),
]

PROGRAM = Path(__file__).with_name("cycles.py")
CYCLES = 150


def test_many_sessions_leave_no_thread_no_file_and_no_memory(engine, tmp_path):
    # In a process of its own: what other tests have left is taken up and let go at any time.
    program = subprocess.run(
        [sys.executable, PROGRAM, engine, tmp_path, str(CYCLES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stderr
    held = json.loads(program.stdout)
    before, after = held["before"], held["after"]
    assert after["threads"] <= before["threads"]
    assert after["files"] <= before["files"]
    assert after["objects"] - before["objects"] < CYCLES / 4
    assert after["memory"] - before["memory"] < 4 * 2**20  # jax takes a megabyte now and then
    assert held["recoveries"] >= CYCLES // 11
