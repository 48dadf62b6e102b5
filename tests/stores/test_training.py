"""A training in a store that is killed leaves the curves of one that was not, on a disk."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runhooks import events
from tests.stores.training_program import main

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("training_program.py")
LIMIT_SECS = 120


def start(directory, last_step):
    words = [sys.executable, PROGRAM, directory, str(last_step)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_curves_are_whole_after_a_kill(bucket, tmp_path):
    url = f"{bucket}/run"
    with start(url, 10**9) as process:
        while int(process.stdout.readline()) < 17:
            pass
        process.kill()
    seen = events.read(url).only.scalars["loss"].steps.tolist()
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 15  # what a checkpoint has, the event files had before
    with start(url, 25) as process:
        process.communicate(timeout=LIMIT_SECS)
    assert process.returncode == 0
    main(tmp_path, 25)
    found, expected = events.read(url).only, events.read(tmp_path).only
    assert len(found.files) == 2
    for column in (0, 1):
        ours, theirs = (run.scalars["loss"][column] for run in (found, expected))
        np.testing.assert_array_equal(ours, theirs)
    ours, theirs = (
        [(it.step, it.value.sum) for it in run.histograms["weights"]] for run in (found, expected)
    )
    assert ours == theirs
