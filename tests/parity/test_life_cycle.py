"""The contract is the one statement of who is called when: here it is held against sessions.

The same programs live the same lives under TensorFlow, but for docs/differences.md.
"""

import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from runhooks import contract

PROGRAMS = Path(__file__).with_name("programs.py")
TABLE = Path(__file__).parents[2] / "docs" / "differences.md"


def lines(text):
    return {words[0]: words[1:] for words in map(str.split, text.strip().splitlines())}


PARTS, LIVES = map(lines, contract.__doc__.split("\n\n")[-2:])

# In each program it is the second of three hooks that raises, if one does.
CALLED = {"each": "abc", "until": "ab", "begun": "a"}


def expanded(words):
    for word in words:
        which, _, method = word.partition(":")
        if word in PARTS:
            yield from expanded(PARTS[word])
        elif which in CALLED:
            yield from (f"{hook}.{method}" for hook in CALLED[which])
        else:
            yield word


class Traces(NamedTuple):
    tensorflow: list[str]
    ours: list[str]


def read_table():
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \| .+ \|$", TABLE.read_text(), re.M)
    return {row[0]: Traces(*(list(expanded(trace.split())) for trace in row[1:])) for row in rows}


DIFFERENCES = read_table()


@functools.cache
def play(*libraries):
    """What happens in each program with each library, by the names of library and program."""
    played = subprocess.run(
        [sys.executable, PROGRAMS, *libraries], capture_output=True, text=True, check=False
    )
    assert played.returncode == 0, played.stderr
    return dict(zip(libraries, map(json.loads, played.stdout.splitlines()), strict=True))


@pytest.fixture
def tensorflows():
    """What happens under TensorFlow's own sessions, and under ours on its graphs."""
    return play("tensorflow", "runhooks.tensorflow")


def pytest_generate_tests(metafunc):
    if "library" in metafunc.fixturenames:
        given = metafunc.config.getoption("--engine")
        libraries = [given] if given else ["python", "jax", "torch", "runhooks.tensorflow"]
        metafunc.parametrize("library", libraries)


@pytest.fixture
def ours(library, request):
    """What happens under our sessions, on each engine."""
    if library == "runhooks.tensorflow":
        return request.getfixturevalue("tensorflows")[library]
    return play(library)[library]


@pytest.mark.every_engine
def test_sessions_call_what_the_life_cycle_says(ours):
    happened = {life: [word.partition(":")[0] for word in ours[life]] for life in LIVES}
    assert happened == {life: list(expanded(words)) for life, words in LIVES.items()}


def test_every_part_is_part_of_a_life():
    assert PARTS.keys() <= {word for words in LIVES.values() for word in words}


def test_programs_live_the_same_lives_but_for_the_differences(ours, tensorflows):
    tensorflow = tensorflows["tensorflow"]
    known = {  # to TensorFlow
        life: [word for word in trace if not word.endswith(".on_exception")]
        for life, trace in ours.items()
    }
    found = {
        life: Traces(trace, known[life])
        for life, trace in tensorflow.items()
        if trace != known[life]
    }
    assert found == DIFFERENCES
