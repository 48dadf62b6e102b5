import json
import math

import pytest


def test_a_row_a_run_with_last_and_best_values(run_file, run, tmp_path) -> None:
    for name, losses in (("a", [3.0, 1.0, 2.0]), ("b", [5.0, 4.0])):
        file = run_file(name)
        for step, loss in enumerate(losses):
            file.add(step, loss=loss, rate=0.5)
    titles, a, b = run("compare", tmp_path).out.splitlines()
    assert titles.split() == ["run", "last", "step", "duration", "loss", "loss", "↓", "rate"]
    assert a.split() == ["a", "2", "2s", "2", "1", "@1", "0.5"]
    assert b.split() == ["b", "1", "1s", "4", "4", "@1", "0.5"]


def test_runs_of_several_paths_are_named_by_path_and_each_is_there_once(
    run_file, run, tmp_path
) -> None:
    for name in ("sweep/a", "sweep/b", "old"):
        run_file(name).add(0, loss=1.0)
    compared = run(
        "compare", tmp_path / "sweep", tmp_path / "old", tmp_path / "sweep" / "a", "--json"
    )
    rows = json.loads(compared.out)
    assert [row["run"] for row in rows] == [
        str(tmp_path / name) for name in ("sweep/a", "sweep/b", "old")
    ]


def test_a_run_without_a_tag_leaves_its_cell_empty(run_file, run, tmp_path) -> None:
    run_file("a").add(0, loss=1.0, extra=2.0)
    run_file("b").add(0, loss=3.0)
    rows = {row["run"]: row for row in json.loads(run("compare", tmp_path, "--json").out)}
    assert rows["a"]["scalars"].keys() == {"loss", "extra"}
    assert rows["b"]["scalars"].keys() == {"loss"}
    titles, a, b = run("compare", tmp_path, "--tag", "extra", "--tag", "loss").out.splitlines()
    assert titles.split()[-4:] == ["loss", "loss", "↓", "extra"]
    assert a.split()[-1] == "2"
    assert b.split()[-2:] == ["3", "@0"]


def test_long_names_of_runs_leave_room_for_values(run_file, run, monkeypatch, tmp_path) -> None:
    for index in range(3):
        file = run_file(f"experiment-with-a-very-long-name-{index}/learning-rate-0.00{index}/train")
        for step in range(3):
            file.add(step, **{"train__loss": index + 0.5, "train__accuracy_" + "a" * 30: 0.25})
    monkeypatch.setenv("COLUMNS", "80")
    titles, *rows, _, _, begin = run("compare", tmp_path).out.splitlines()
    assert titles.split() == ["run", "last", "step", "train/acc...aaaaaaaa"]
    assert [row.split()[0] for row in rows] == [
        f"...{it}/learnin...0.00{it}/train" for it in range(3)
    ]
    assert [row.split()[2] for row in rows] == ["0.25"] * 3
    assert begin.endswith(" experiment-with-a-very-long-name-")
    monkeypatch.delenv("COLUMNS")
    whole = run("compare", tmp_path).out
    assert "experiment-with-a-very-long-name-2/learning-rate-0.002/train " in whole
    assert "..." not in whole


def test_names_are_cut_no_further_than_they_can_be_told_apart(
    run_file, run, monkeypatch, tmp_path
) -> None:
    names = [f"{'a' * 30}{index}{'z' * 30}" for index in range(2)]
    for name in names:
        run_file(name).add(0, loss=1.0)
    monkeypatch.setenv("COLUMNS", "100")
    _, first, second, *_ = run("compare", tmp_path).out.splitlines()
    assert (first.split()[0], second.split()[0]) == tuple(names)


def test_a_goal_of_no_tag_or_of_both_kinds_is_refused(run_file, run, tmp_path) -> None:
    run_file("a").add(0, train__loss=1.0, rate=2.0)
    for options, *named in (
        (["--min", "train/los"], "--min: ", "'train/los'", "did you mean 'train/loss'?"),
        (["--max", "x*"], "--max: ", "'x*'", "rate, train/loss"),
        (["--min", "rate", "--max", "rate"], "'rate'", "--min and --max"),
    ):
        for command in ("compare", "show"):
            wrong = run(command, tmp_path, *options)
            assert (wrong.status, wrong.out) == (2, "")
            assert all(it in wrong.errors for it in named)


def test_hyper_parameters_that_differ_are_columns(run_file, run, tmp_path) -> None:
    run_file("a").hparams(lr=0.1, batch=32.0, model="cnn").add(0, loss=1.0)
    run_file("b").hparams(lr=0.5, batch=32.0).add(0, loss=2.0)
    titles, a, b, common = run("compare", tmp_path, "--tag", "loss").out.splitlines()
    assert titles.split()[:7] == ["run", "last", "step", "duration", "lr", "model", "loss"]
    assert a.split()[:5] == ["a", "0", "0s", "0.1", "cnn"]
    assert b.split()[:4] == ["b", "0", "0s", "0.5"]
    assert common.endswith(" batch 32")
    rows = json.loads(run("compare", tmp_path, "--json").out)
    assert [row["hparams"]["lr"] for row in rows] == [0.1, 0.5]


def test_hyper_parameters_that_differ_little_are_told_apart(run_file, run, tmp_path) -> None:
    for name, seed, rate, data in (("a", 1234567.0, 0.1, "A"), ("b", 1234599.0, 0.1000004, "B")):
        where = f"s3://bucket/{'x' * 60}/{data}/{'y' * 60}"
        file = run_file(name).hparams(seed=seed, lr=rate, data=where, same=math.nan, id=7654321.0)
        file.add(0, loss=1.0)
    titles, a, b, common = run("compare", tmp_path).out.splitlines()
    assert all(it in titles for it in ("seed", "lr", "data"))
    assert all(it in a.split() for it in ("1234567", "0.1"))
    assert all(it in b.split() for it in ("1234599", "0.1000004"))
    assert "x/A/y" in a
    assert "x/B/y" in b
    assert common.endswith(": same nan, id 7654321")


def test_the_best_of_many_runs_come_first(run_file, run, tmp_path) -> None:
    for number in range(30):
        file = run_file(f"{number:02}").add(1, loss=float(number * 7 % 30), rate=float(number))
        file.add(2, loss=99.0)
    run_file("nan").add(1, loss=math.nan)
    run_file("without").add(1, other=1.0)
    compared = run("compare", tmp_path, "--sort", "loss", "--limit", "3").out.splitlines()
    assert [line.split()[0] for line in compared[1:4]] == ["00", "13", "26"]
    assert compared[4:] == ["the first 3 of 32 runs; leave out --limit to see all"]
    rows = json.loads(run("compare", tmp_path, "--sort", "loss", "--json").out)
    assert [row["scalars"]["loss"]["min"]["value"] for row in rows[:30]] == [*range(30)]
    assert [row["run"] for row in rows[30:]] == ["nan", "without"]
    highest = run("compare", tmp_path, "--sort", "rate", "--max", "rate", "--limit", "2", "--json")
    assert [row["run"] for row in json.loads(highest.out)] == ["29", "28"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sort", "lost"], "--sort: no scalar 'lost'; did you mean 'loss'?"),
        (["--sort", "rate"], "say which values of 'rate' are the best: --min 'rate' or"),
        (["--limit", "0"], "'--limit'"),
    ],
)
def test_what_cannot_be_sorted_is_said(arguments, said, run_file, run, tmp_path) -> None:
    run_file("a").add(1, loss=1.0, rate=1.0)
    compared = run("compare", tmp_path, *arguments)
    assert compared.status == 2
    assert said in compared.errors
