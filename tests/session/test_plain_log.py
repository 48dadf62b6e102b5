"""What hooks log is seen in a program that has configured no logging, and once in others."""

import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys
import runhooks as rh

{before}
graph = rh.graph(lambda w, x: (w + x, {{"loss": w}}), w=0.0, data=[1.0, 2.0, 3.0])
with graph.as_default():
    hooks = [rh.LoggingTensorHook({{"loss": "loss"}}, formatter=lambda it: "the line", at_end=False,
                                  trigger=rh.Trigger(every_steps=1))]
    with rh.MonitoredSession(hooks=hooks) as sess:
        sess.run("train_op")
        {between}
        sess.run("train_op")
logging.getLogger("runhooks").warning("a warning")
"""


def lines(before="", between=""):
    code = PROGRAM.format(before=before, between=between)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_lines_are_seen_plainly_if_nothing_is_configured():
    found = lines()
    assert [it for it in found if "line" in it] == ["the line"] * 2
    assert found[-1] == "a warning"
    assert any(it.startswith("the session has ended at step 2") for it in found)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("logging.basicConfig(level=logging.INFO, format='root %(message)s')", ["root the line"]),
        ("logging.basicConfig(format='root %(message)s')", []),
        ("logging.getLogger('runhooks').addHandler(logging.NullHandler())", []),
        ("logging.getLogger('runhooks').setLevel(logging.WARNING)", []),
        ("logging.getLogger('runhooks').propagate = False", []),
    ],
    ids=["root", "root at warnings", "own", "level", "shut off"],
)
def test_what_the_program_has_configured_holds(before, expected):
    assert [it for it in lines(before) if "line" in it] == expected * 2


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        (
            "logging.basicConfig(level=logging.INFO, format='root %(message)s')",
            ["the line", "root the line"],
        ),
        ("logging.basicConfig(format='root %(message)s')", ["the line"]),
    ],
    ids=["info", "warnings"],
)
def test_what_is_configured_later_takes_over(between, expected):
    found = lines(between=between)
    assert [it for it in found if "line" in it] == expected
    assert found[-1] == "root a warning"


def test_another_session_leaves_the_level_as_the_program_has_set_it():
    again = "rh.MonitoredSession().close()"
    found = lines(between=f"logging.getLogger('runhooks').setLevel(logging.NOTSET); {again}")
    assert [it for it in found if "line" in it] == ["the line"]
