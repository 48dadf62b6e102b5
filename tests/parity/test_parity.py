"""The same programs live the same lives here and under TensorFlow, but for docs/differences.md."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from runhooks.contract import LIFE_CYCLE

PROGRAMS = Path(__file__).with_name("programs.py")
TABLE = Path(__file__).parents[2] / "docs" / "differences.md"
PARTS = {words[0]: words[1:] for words in map(str.split, LIFE_CYCLE.strip().splitlines()) if words}
CALLED = {"each": "abc", "until": "ab"}


class Traces(NamedTuple):
    tensorflow: list[str]
    ours: list[str]


def expanded(words):
    for word in words:
        which, _, method = word.partition(":")
        if word in PARTS:
            yield from expanded(PARTS[word])
        elif which in CALLED:
            yield from (f"{hook}.{method}" for hook in CALLED[which])
        else:
            yield word


def read_table():
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \| .+ \|$", TABLE.read_text(), re.M)
    return {row[0]: Traces(*(list(expanded(trace.split())) for trace in row[1:])) for row in rows}


DIFFERENCES = read_table()


def play(library):
    played = subprocess.run(
        [sys.executable, PROGRAMS, library], capture_output=True, text=True, check=False
    )
    assert played.returncode == 0, played.stderr
    return json.loads(played.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def tensorflow():
    """What happens in each program under TensorFlow's own sessions."""
    return play("tensorflow")


@pytest.fixture(scope="module", params=["python", "jax", "torch", "runhooks.tensorflow"])
def ours(request):
    """What happens under ours, as far as TensorFlow knows it."""
    return {
        name: [word for word in trace if not word.endswith(".on_exception")]
        for name, trace in play(request.param).items()
    }


def test_programs_live_the_same_lives_but_for_the_differences(tensorflow, ours):
    found = {
        name: Traces(tensorflow[name], ours[name])
        for name in tensorflow
        if tensorflow[name] != ours[name]
    }
    assert found == DIFFERENCES
