"""The contract is the one statement of who is called when: here it is held against sessions.

The same programs live the same lives under TensorFlow, but for docs/differences.md.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from runhooks import contract

pytestmark = pytest.mark.slow

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


LAUNCHERS = {
    "jax": "jax_launcher",
    "torch": "torch_launcher",
    "tensorflow": "tensorflow_launcher",
    "runhooks.tensorflow": "tensorflow_launcher",
}


@pytest.fixture(scope="module")
def play(request, tmp_path_factory):
    """Returns what happens with a library, by the names of the programs; played once each."""
    folder = tmp_path_factory.mktemp("played")

    @cache
    def play(library):
        launcher = request.getfixturevalue(LAUNCHERS.get(library, "plain_launcher"))
        log = folder / library
        assert launcher.wait(launcher.start(log, PROGRAMS, library)) == 0, log.read_text()
        return json.loads(log.read_text().splitlines()[-1])

    return play


def pytest_generate_tests(metafunc):
    if "library" in metafunc.fixturenames:
        given = metafunc.config.getoption("--engine")
        libraries = [given] if given else ["python", "jax", "torch", "runhooks.tensorflow"]
        metafunc.parametrize("library", libraries)


@pytest.fixture
def ours(library, play):
    """What happens under our sessions, on each engine."""
    return play(library)


@pytest.mark.every_engine
def test_sessions_call_what_the_life_cycle_says(ours):
    happened = {life: [word.partition(":")[0] for word in ours[life]] for life in LIVES}
    assert happened == {life: list(expanded(words)) for life, words in LIVES.items()}


def test_every_part_is_part_of_a_life():
    assert PARTS.keys() <= {word for words in LIVES.values() for word in words}


def test_programs_live_the_same_lives_but_for_the_differences(ours, play):
    known = {  # to TensorFlow
        life: [word for word in trace if not word.endswith(".on_exception")]
        for life, trace in ours.items()
    }
    found = {
        life: Traces(trace, known[life])
        for life, trace in play("tensorflow").items()
        if trace != known[life]
    }
    assert found == DIFFERENCES
