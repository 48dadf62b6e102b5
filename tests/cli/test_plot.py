import json
import math

import pytest


def test_a_chart_fits_the_terminal_and_has_a_legend(run_file, terminal, tmp_path) -> None:
    for name, sign in (("up", 1), ("down", -1)):
        file = run_file(name)
        for step in range(50):
            file.add(step, loss=sign * step, rate=1.0)
    for columns in (60, 200):
        shown = terminal("plot", tmp_path, "--tag", "loss", columns=columns)
        assert shown.finish() == 0
        title, *chart, first, second = shown.lines
        assert title == "loss"
        assert [first, second] == ["━━ down", "━━ up"]
        assert len(chart) <= 24 - 3
        assert len(chart[0]) == columns
        assert [line.split("┤")[0] for line in chart if "┤" in line] == [
            " 40", " 20", "  0", "-20", "-40"
        ]  # fmt: skip
        assert chart[-1].split()[0] == "0"
        assert b"\x1b[36m" in shown.sent  # each run in a colour of its own
        assert b"\x1b[33m" in shown.sent


@pytest.mark.slow
def test_lines_without_colours_are_drawn_with_letters(run_file, run, terminal, tmp_path) -> None:
    for name, sign in (("up", 1), ("down", -1)):
        file = run_file(name)
        for step in range(50):
            file.add(step, loss=sign * step)
    piped = run("plot", tmp_path).out
    assert piped.splitlines()[-2:] == ["a down", "b up"]
    assert "\x1b" not in piped
    assert len(piped.splitlines()[1]) == 80
    colorless = terminal("plot", tmp_path, NO_COLOR="1")
    assert colorless.finish() == 0
    assert colorless.lines[-2:] == ["a down", "b up"]
    assert b"\x1b[3" not in colorless.sent
    middle = colorless.lines[len(colorless.lines) // 2]
    assert set(middle) & {"a", "b"}


@pytest.mark.slow
def test_a_place_that_takes_only_ascii(run_file, start_piped) -> None:
    file = run_file("a")
    for step in range(5):
        file.add(step, loss=step)
    for command in ("plot", "show"):
        shown = start_piped(command, file.path, PYTHONIOENCODING="ascii")
        out, errors = shown.communicate()
        assert (shown.returncode, errors) == (0, b"")
        assert out.isascii()
        assert b"\\u" not in out


def test_values_that_are_not_finite_are_left_out_and_counted(run_file, run) -> None:
    file = run_file("a")
    for step, value in enumerate([1.0, math.nan, 2.0, math.inf, -math.inf]):
        file.add(step, loss=value)
    assert run("plot", file.directory).out.splitlines()[-1].endswith("a, 3 not finite")


def test_points_as_json_are_all_there(run_file, run) -> None:
    file = run_file("a")
    for step in range(3000):
        file.add(step, loss=step)
    [line] = json.loads(run("plot", file.directory, "--json").out)
    assert line["steps"] == list(range(3000))
    assert line["values"] == list(range(3000))


def test_what_to_plot_is_asked_for_where_it_is_not_clear(run_file, run, tmp_path) -> None:
    run_file("a").add(0, loss=1.0, rate=2.0)
    asked = run("plot", tmp_path)
    assert asked.status == 2
    assert "--tag: loss, rate" in asked.errors


def test_of_many_runs_the_best_are_plotted(run_file, run, tmp_path) -> None:
    for index in range(15):
        file = run_file(f"many/{index:02}")
        file.add(0, loss=float(index), rate=1.0).add(1, loss=100.0, rate=float(index))
    plotted = run("plot", tmp_path / "many", "--tag", "loss").out.splitlines()
    assert plotted[-13:-1] == [f"{chr(ord('a') + it)} {it:02}" for it in range(12)]
    assert plotted[-1] == "the 12 of 15 runs with the lowest loss"
    plotted = run("plot", tmp_path / "many", "--tag", "rate", "--max", "rate").out.splitlines()
    assert plotted[-13:-1] == [f"{chr(ord('a') + it)} {it + 3:02}" for it in range(12)]
    asked = run("plot", tmp_path / "many", "--tag", "rate")
    assert asked.status == 2
    assert "say which values of 'rate' are the best: --min 'rate' or --max 'rate'" in asked.errors


def test_what_no_plot_can_show_is_refused(run_file, run) -> None:
    file = run_file("a").add(0, loss=math.nan).add(1, loss=math.inf)
    wrong = run("plot", file.directory)
    assert (wrong.status, wrong.out) == (2, "")
    assert "no finite value of loss" in wrong.errors
    assert json.loads(run("plot", file.directory, "--json").out)[0]["values"] == ["NaN", "Infinity"]
