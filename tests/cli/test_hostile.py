"""Files of strangers: nothing in them commands the terminal, and none ends in a traceback."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runhooks import summary
from runhooks.checkpoint import Snapshot, write_checkpoint
from runhooks.events import frame
from tests.checkpoint.sealing import forge

EVIL = "evil\x1b]0;owned\x07\x9b31m\u202e\x7f\r\nfake"
COMMANDS = [
    ["show"],
    ["show", "--json"],
    ["plot", "--tag=*"],
    ["compare"],
    ["check"],
    ["check", "--json"],
    ["export", "--csv", "--hparams"],
    ["export", "--jsonl"],
    ["show", "--tag", "nope"],
    ["compare", "--min", "nope"],
]
NONSENSE = [None, -1, 1 << 4000, EVIL, [[[[]]]]]


def assert_printable(text: str) -> None:
    assert all(it.isprintable() or it == "\n" for it in text), text


@pytest.fixture
def evil(run_file):
    """An event file with control characters wherever there is text, and a damage."""
    file = run_file(EVIL)
    file.hparams(**{EVIL: EVIL})
    for step in (1, 5, 2):  # goes back
        scalar = summary.scalar_value(EVIL, float(step))
        file.add(step, scalar, summary.text_value(f"{EVIL}-text", EVIL))
    content = bytearray(file.path.read_bytes())
    content[60] ^= 0xFF
    file.path.write_bytes(content)
    return file


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_of_an_event_file_is_printed_raw(evil, run, command) -> None:
    name, *options = command
    ended = run(name, evil.directory, *options)
    assert "unexpected" not in ended.errors
    assert_printable(ended.errors)
    assert not any(line.startswith("fake") for line in ended.errors.splitlines())
    if name != "export":  # data stays data where it does not go to a terminal
        assert_printable(ended.out)


@pytest.mark.parametrize("command", [["show"], ["plot", "--tag=*"], ["export", "--csv"], ["tail"]])
def test_an_event_file_cannot_command_the_terminal(evil, terminal, command) -> None:
    shown = terminal(*command, evil.directory, columns=120)
    if command == ["tail"]:
        shown.wait_for(" 2 ")
    else:
        shown.finish()
    for sequence in (b"\x1b]0;", b"\xc2\x9b", b"\x07", b"\x7f", "\u202e".encode()):
        assert sequence not in shown.sent


def places_in(value, place=()):
    """The places in nested dicts and lists, each as the keys that lead there."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*place, key)
        if isinstance(inner, dict | list):
            yield from places_in(inner, (*place, key))


def test_a_checkpoint_cannot_command_the_terminal(run, tmp_path) -> None:
    path = tmp_path / f"{EVIL.replace(chr(10), '')}-7"
    arrays = {EVIL: np.zeros(3, np.float32)}
    write_checkpoint(path, Snapshot(arrays, {EVIL: {"a": 1}}), global_step=7)
    forge(path, lambda it: it["about"]["metrics"].update({EVIL: 1.0}))
    for directory in (tmp_path, path):
        listed = run("checkpoints", directory)
        assert listed.status == 0
        assert "evil" in listed.out
        assert_printable(listed.out + listed.errors)
    forge(path, lambda it: it["arrays"][EVIL].update(dtype=EVIL))
    for directory in (tmp_path, path):
        listed = run("checkpoints", directory)
        assert listed.status == 1
        assert_printable(listed.out + listed.errors)


@pytest.mark.slow
def test_manifests_of_nonsense_are_damage_and_never_a_traceback(run, tmp_path) -> None:
    path = tmp_path / "model.ckpt-7"
    arrays = {"w": np.zeros((2, 3), np.float32)}
    write_checkpoint(path, Snapshot(arrays, {"Hook": {"a": 1}}), global_step=7)
    file = path / "checkpoint.safetensors"
    sound, parts = file.read_bytes(), {}
    forge(path, lambda it: parts.update(about=it["about"], arrays=it["arrays"]))
    for place in places_in(parts):
        for value in NONSENSE:

            def change(part, place=place, value=value):
                *above, key = place
                for it in above:
                    part = part[it]
                part[key] = value

            file.write_bytes(sound)
            forge(path, change)
            listed = run("checkpoints", path)
            assert listed.status in (0, 1, 2)
            assert "unexpected" not in listed.errors
            assert_printable(listed.out + listed.errors)


@pytest.mark.slow
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4), st.binary(max_size=40))
def test_no_event_file_ends_in_a_traceback(run_file, run, payloads, end) -> None:
    file = run_file("a")
    file.path.write_bytes(b"".join(map(frame, payloads)) + end)
    for name, *options in (["show"], ["check"], ["compare"], ["export", "--csv"]):
        ended = run(name, file.path, *options)
        assert ended.status in (0, 1, 2)
        assert "unexpected" not in ended.errors


def test_output_that_cannot_be_written_is_one_line(run_file, run, tmp_path) -> None:
    file = run_file("a").add(1, loss=1.0)
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "folder.png").mkdir()
    for command in (
        ["export", file.path, "--csv", "-o", tmp_path / "folder.csv"],
        ["export", file.path, "-o", tmp_path / "no" / "x.parquet"],
    ):
        ended = run(*command)
        assert ended.status == 2
        assert str(command[-1]) in ended.errors
        assert len(ended.errors.splitlines()) == 1
    assert not list(chain(tmp_path.glob("*.part"), tmp_path.glob(".*")))
    assert not list((tmp_path / "folder.csv").iterdir())
