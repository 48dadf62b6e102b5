"""LIFE_CYCLE is the one statement of who is called when: here it is held against sessions."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runhooks.contract import LIFE_CYCLE

PROGRAMS = Path(__file__).parents[1] / "parity" / "programs.py"


def lines(text):
    return {words[0]: words[1:] for words in map(str.split, text.strip().splitlines())}


PARTS, LIVES = map(lines, LIFE_CYCLE.split("\n\n"))

# In each program it is the second of three hooks that raises, if one does.
CALLED = {"each": "abc", "until": "ab", "begun": "a"}


def expanded(words):
    for word in words:
        which, _, method = word.partition(":")
        if word in PARTS:
            yield from expanded(PARTS[word])
        elif method:
            yield from (f"{hook}.{method}" for hook in CALLED[which])
        else:
            yield word


@pytest.fixture(scope="module", params=["python", "jax", "torch"])
def traces(request):
    """What happened in each program, on each engine."""
    played = subprocess.run(
        [sys.executable, PROGRAMS, request.param], capture_output=True, text=True, check=False
    )
    assert played.returncode == 0, played.stderr
    return json.loads(played.stdout)


@pytest.mark.parametrize("life", LIVES)
def test_session_calls_what_the_life_cycle_says(life, traces):
    what_happened = [word.partition(":")[0] for word in traces[life]]
    assert what_happened == list(expanded(LIVES[life]))


def test_every_part_is_part_of_a_life():
    assert PARTS.keys() <= {word for words in LIVES.values() for word in words}
