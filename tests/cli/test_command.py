"""What all sub-commands have in common."""

import json
import re
import subprocess
import sys

import pytest

from runhooks import events, summary

COMMANDS = ["show", "plot", "compare", "tail", "export", "check", "checkpoints", "doctor"]
READING = [["show"], ["plot"], ["compare"], ["export", "--csv"], ["check"]]


def test_help_names_every_command(run) -> None:
    out = run("--help").out
    assert [line.split()[0] for line in out.partition("Commands:\n")[2].splitlines()] == COMMANDS
    assert run().status == 2
    assert run("--version").out.startswith("runhooks 0.")


@pytest.mark.parametrize("command", [*READING, ["tail"], ["checkpoints"]])
def test_a_path_that_is_not_there(run, tmp_path, command) -> None:
    missing = run(*command, tmp_path / "missing")
    assert missing.status == 2
    assert f"there is no file or directory {tmp_path}/missing" in missing.errors


@pytest.mark.parametrize("command", READING)
def test_a_directory_without_runs(run, tmp_path, command) -> None:
    empty = run(*command, tmp_path)
    assert (empty.status, empty.out) == (2, "")
    assert f"no event file in {tmp_path}" in empty.errors


@pytest.mark.parametrize("command", [["show"], ["plot"], ["compare"], ["export", "--csv"]])
def test_a_tag_that_is_not_there(run_file, run, command) -> None:
    file = run_file("a").add(1, train__loss=1.0, rate=2.0)
    wrong = run(*command, file.path, "--tag", "train/lost")
    assert (wrong.status, wrong.out) == (2, "")
    assert f"'train/lost' in {file.path}; did you mean 'train/loss'?" in wrong.errors
    other = run(*command, file.path, "--tag", "xyz*")
    assert f"'xyz*' in {file.path}" in other.errors
    assert "rate, train/loss" in other.errors


def test_a_tag_of_another_kind(run_file, run) -> None:
    file = run_file("a").add(1, summary.histogram_value("weights", [1.0]), loss=1.0)
    wrong = run("plot", file.path, "--tag", "weights")
    assert f"'weights' in {file.path}" in wrong.errors
    assert "histogram, not scalar" in wrong.errors


def test_a_wrong_command_line(run) -> None:
    for arguments in (["nope"], ["show"], ["show", "--nope"]):
        wrong = run(*arguments)
        assert (wrong.status, wrong.out) == (2, "")
        assert "--help" in wrong.errors


@pytest.mark.parametrize("command", [["show"], ["tail"], ["export", "--csv"], ["check"]])
def test_one_path_where_several_are_given(run_file, run, tmp_path, command) -> None:
    paths = [run_file(name).add(1, loss=1.0).directory for name in ("a", "b", "c")]
    wrong = run(*command, *paths)
    assert (wrong.status, wrong.out) == (2, "")
    assert f"{command[0]} takes one path, got 3" in wrong.errors


@pytest.mark.parametrize("command", [["plot"], ["compare"], ["export", "--csv"]])
def test_runs_without_scalars(run_file, run, command) -> None:
    file = run_file("a").add(1, summary.histogram_value("weights", [1.0]))
    for options in ([], ["--json"] if command != ["export", "--csv"] else []):
        nothing = run(*command, file.directory, *options)
        assert (nothing.status, nothing.out) == (2, "")
        assert f"no scalar in {file.directory}" in nothing.errors
    assert "weights" in run("show", file.directory).out


@pytest.mark.parametrize("command", READING[:-1])
def test_a_file_of_another_kind(run, tmp_path, command) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no event is in here\n" * 10)
    wrong = run(*command, path)
    assert (wrong.status, wrong.out) == (2, "")
    assert f"{path} must be an event file" in wrong.errors


def test_columns_of_the_environment_count_in_a_pipe_too(
    run_file, run, monkeypatch, tmp_path
) -> None:
    for name in ("a", "b"):
        file = run_file(name)
        for step in range(30):
            file.add(step, train__loss=step + 0.123456, evaluation__accuracy=1 / (step + 7))
    commands = (["show", tmp_path], ["compare", tmp_path], ["plot", tmp_path, "--tag=*s"])
    for command in commands:
        widths = {}
        for columns in ("50", "70", None):
            if columns is None:
                monkeypatch.delenv("COLUMNS")
            else:
                monkeypatch.setenv("COLUMNS", columns)
            widths[columns] = max(map(len, run(*command).out.splitlines()))
        assert widths["50"] <= 50 < widths["70"] <= 70 < widths[None]


def test_very_long_tags_are_cut_but_not_in_json(run_file, run) -> None:
    tags = [f"{'a' * 500}{end * 50}" for end in "bc"]
    file = run_file("a")
    for step in (1, 2, 1):
        file.add(step, **dict.fromkeys(tags, 1.0))
    for command in ("show", "compare", "check", "plot"):
        options = ["--tag=*b"] if command == "plot" else []
        out = run(command, file.directory, *options).out
        assert f"{'a' * 49}...{'b' * 48}" in out
        assert "a" * 50 not in out
    assert json.loads(run("compare", file.directory, "--json").out)[0]["scalars"].keys() == {*tags}


def test_a_reader_that_stops_reading(run_file, start_piped) -> None:
    file = run_file("a")
    for step in range(5000):
        file.add(step, loss=1.0)
    process = start_piped("export", file.path, "--csv")
    assert process.stdout.readline()
    process.stdout.close()
    process.wait(60)
    assert process.stderr.read() == b""


def test_a_terminal_that_is_far_too_narrow_loses_nothing(run_file, terminal) -> None:
    file = run_file("a").add(1, training__loss=0.123456)
    shown = terminal("show", file.directory, columns=18)
    assert shown.finish() == 0
    table = shown.lines[shown.lines.index("scalar        last") :]
    assert table[1:3] == ["training/loss", f"{'':11}0.12346"]


def test_names_and_dates_can_be_copied_from_a_narrow_terminal(run_file, terminal, tmp_path) -> None:
    names = [f"lr-{number}-batch-256-augmented-{'x' * 60}-{number}" for number in (1, 2)]
    for name in names:
        run_file(name).add(1, loss=0.5)
    for command in ("show", "check"):
        sent = terminal(command, tmp_path, columns=40)
        assert sent.finish() == 0
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", it) for it in sent.sent.decode().splitlines()]
        for name in names:
            assert any(name in line for line in lines)
        if command == "show":
            assert sum("2023-11-14 22:13:21 (" in line for line in lines) == 2


def test_a_wide_terminal_shows_all_columns_and_a_narrow_one_says_what_is_missing(
    run_file, terminal
) -> None:
    file = run_file("a")
    for step in range(100):
        file.add(step, loss=step + 0.123)

    def titles(columns: int) -> tuple[list[str], str]:
        shown = terminal("show", file.directory, columns=columns)
        assert shown.finish() == 0
        start = next(i for i, line in enumerate(shown.lines) if line.startswith("scalar"))
        return shown.lines[start].split(), " ".join(shown.lines[start + 2 :])

    wide, nothing = titles(200)
    assert " ".join(wide) == "scalar points steps first last min max best curve"
    assert nothing == ""
    narrow, note = titles(60)
    assert narrow == ["scalar", "points", "steps", "first", "last", "best", "curve"]
    assert note == "min, max: in a wider terminal, or with --json"


@pytest.mark.slow
def test_colours_are_for_terminals_that_want_them(run_file, run, terminal) -> None:
    file = run_file("a").add(1, loss=1.0)
    for variables, wanted in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        shown = terminal("show", file.path, columns=200, **variables)
        assert shown.finish() == 0
        assert (b"\x1b[36m" in shown.sent) is wanted
    assert "\x1b" not in run("show", file.path).out


def test_a_long_read_is_announced_on_the_terminal_and_leaves_no_trace(
    run_file, terminal, tmp_path
) -> None:
    file = run_file("a").add(1, loss=1.0)
    read_when_allowed = """
import pathlib, time
from runhooks import events
read = events.read
def slow(*arguments, **options):
    while not pathlib.Path("allowed").exists():
        time.sleep(0.01)
    return read(*arguments, **options)
events.read = slow
""".replace("allowed", str(tmp_path / "allowed"))
    with (tmp_path / "results").open("w+") as results:
        reading = terminal("show", file.path, columns=200, stdout=results, first=read_when_allowed)
        reading.wait_for(f"reading {file.path}")
        (tmp_path / "allowed").touch()
        assert reading.finish() == 0
        assert reading.lines == [""]
        results.seek(0)
        assert "reading" not in results.read()


def test_without_its_extra_the_command_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; sys.modules['plotext'] = None\n"
        "from runhooks.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "typer and plotext: pip install 'runhooks[cli]'" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        *([*command, "nobody://knows//it"] for command in [*READING, ["tail"], ["checkpoints"]]),
        ["export", ".", "-o", "nobody://bucket//x.csv"],
    ],
)
def test_a_url_is_refused_as_it_was_written(run, arguments) -> None:
    wrong = run(*arguments)
    assert wrong.status == 2
    assert arguments[-1].partition("//")[0] in wrong.errors


def test_an_unexpected_error_is_one_line(run_file, run, monkeypatch) -> None:
    file = run_file("a").add(1, loss=1.0)

    def fail(*args, **options):
        raise KeyError("\x1b[31m")

    monkeypatch.setattr(events, "read", fail)
    failed = run("show", file.path)
    assert failed.status == 2
    assert len(failed.errors.splitlines()) == 1
    assert "KeyError" in failed.errors
    assert "\x1b" not in failed.errors
    monkeypatch.setenv("RUNHOOKS_TRACEBACK", "1")
    with pytest.raises(KeyError):
        run("show", file.path)
