import json
import math

import numpy as np

from runhooks import summary


def test_a_run_is_a_line_a_tag(run_file, run, tmp_path) -> None:
    file = run_file("a")
    for step, loss in enumerate([4.0, 1.0, 2.0]):
        file.add(10 * step, loss=loss, rate=0.5)
    shown = run("show", tmp_path / "a")
    assert shown.status == 0
    assert shown.errors == ""
    heading, empty, titles, loss, rate = shown.out.splitlines()
    assert heading.startswith(f"{tmp_path}/a: 1 file, ")
    assert "spans 20s, last point 2023-11-14 22:13:40" in heading
    assert empty == ""
    assert " ".join(titles.split()) == "scalar points steps first last min max best curve"
    assert " ".join(loss.split()) == "loss 3 0..20 4 2 1 @10 4 @0 ↓ 1 @10 █ ▁ ▃"
    assert rate.split()[:5] == ["rate", "3", "0..20", "0.5", "0.5"]


def test_values_that_are_not_finite_are_counted_and_not_the_best(run_file, run) -> None:
    file = run_file("a")
    for step, value in enumerate([math.nan, 3.0, -math.inf, 2.0]):
        file.add(step, loss=value)
    [found] = json.loads(run("show", file.path, "--json").out)["runs"][0]["scalars"]
    assert found["first"] == "NaN"
    assert found["best"] == found["min"] == {"value": 2.0, "step": 3}
    assert found["max"] == {"value": 3.0, "step": 1}
    assert found["non_finite"] == 2
    titles, row = run("show", file.path).out.splitlines()[2:]
    assert "nan/inf" in titles
    assert row.split()[3:5] == ["nan", "2"]


def test_a_word_in_a_tag_tells_what_is_best_and_an_option_overrules_it(run_file, run) -> None:
    file = run_file("a")
    for step, value in enumerate([1.0, 3.0, 2.0]):
        file.add(step, top1Accuracy=value, eval__loss=value, width=value, accuracy_loss=value)

    def best(*options: str) -> dict[str, str | None]:
        shown = json.loads(run("show", file.path, "--json", *options).out)
        return {it["tag"]: it["goal"] for it in shown["runs"][0]["scalars"]}

    assert best() == {
        "top1Accuracy": "max", "eval/loss": "min", "width": None, "accuracy_loss": None
    }  # fmt: skip
    overruled = best("--min", "width", "--min", "top1*", "--max", "*loss")
    assert overruled == {
        "top1Accuracy": "min", "eval/loss": "max", "width": "min", "accuracy_loss": "max"
    }  # fmt: skip


def test_kinds_other_than_scalars_have_a_table_of_their_own(run_file, run) -> None:
    file = run_file("a")
    for step in (3, 5):
        file.add(step, summary.histogram_value("weights", [1.0, 2.0]), loss=1.0)
    lines = run("show", file.path).out.splitlines()
    assert [line.split() for line in lines[-2:]] == [
        ["other", "kind", "points", "steps"],
        ["weights", "histogram", "2", "3..5"],
    ]
    [other] = json.loads(run("show", file.path, "--json").out)["runs"][0]["others"]
    assert other == {
        "tag": "weights", "kind": "histogram", "points": 2, "first_step": 3, "last_step": 5
    }  # fmt: skip


def test_a_tag_of_several_kinds_is_shown_with_each(run_file, run, tmp_path) -> None:
    image = summary.picture_value("loss", np.zeros((1, 1)))
    histogram = summary.histogram_value("loss", [1.0, 2.0])
    file = run_file("run0").add(3, image, histogram, loss=1.0).add(5, histogram)
    lines = [line.split() for line in run("show", file.path).out.splitlines()]
    assert ["loss", "histogram", "2", "3..5"] in lines
    assert ["loss", "image", "1", "3"] in lines
    [found] = json.loads(run("show", file.path, "--json").out)["runs"]
    assert [it["tag"] for it in found["scalars"]] == ["loss"]
    assert [it["kind"] for it in found["others"]] == ["histogram", "image"]
    for index in range(1, 11):
        run_file(f"run{index}").add(index, loss=1.0)
    row = next(it for it in run("show", tmp_path).out.splitlines() if it.startswith("run0 "))
    assert row.split()[2:4] == ["4", "5"]


def test_each_of_a_few_runs_is_shown_and_each_of_many_is_a_row(run_file, run, tmp_path) -> None:
    for index in range(10):
        run_file(f"run{index}").add(index, loss=1.0)
    few = run("show", tmp_path).out
    assert few.count("scalar") == 10
    run_file("run10").add(7, loss=1.0, rate=2.0)
    titles, *rows = run("show", tmp_path).out.splitlines()
    assert titles.split()[:4] == ["run", "tags", "points", "last"]
    assert len(rows) == 11
    assert [row.split()[:4] for row in rows if row.startswith("run10")] == [
        ["run10", "2", "2", "7"]
    ]


def test_a_run_with_others_below_it_is_headed_by_its_path(run_file, run, tmp_path) -> None:
    run_file("a").add(1, loss=1.0)
    run_file("a/eval").add(1, loss=2.0)
    headings = [line for line in run("show", tmp_path / "a").out.splitlines() if "file" in line]
    assert headings[0].startswith(f"{tmp_path / 'a'}: 1 file")
    assert headings[1].startswith("eval: 1 file")


def test_tags_are_chosen_by_patterns(run_file, run) -> None:
    file = run_file("a").add(1, loss=1.0, eval__loss=2.0, rate=3.0)
    shown = json.loads(run("show", file.path, "--json", "--tag", "*loss", "--tag", "ra*").out)
    assert [it["tag"] for it in shown["runs"][0]["scalars"]] == ["eval/loss", "loss", "rate"]
    shown = json.loads(run("show", file.path, "--json", "--tag", "loss").out)
    assert [it["tag"] for it in shown["runs"][0]["scalars"]] == ["loss"]


def test_a_run_without_values_is_said_to_have_none(run_file, run) -> None:
    file = run_file("a")
    shown = run("show", file.path)
    assert shown.status == 0
    assert shown.out.splitlines() == [f"{file.path}: 1 file, 40 B", "it has no values yet"]


def test_hyper_parameters_are_shown(run_file, run) -> None:
    file = run_file("a").hparams(lr=0.1, model="cnn\x1b[31m", flip=True).add(1, loss=1.0)
    for options in ([], ["--tag", "loss"]):
        lines = [line.split() for line in run("show", file.path, *options).out.splitlines()]
        assert ["lr", "0.1"] in lines
        assert ["model", r"cnn\x1b[31m"] in lines
        assert ["flip", "True"] in lines
        assert not any("_hparams_" in word for line in lines for word in line)
    [found] = json.loads(run("show", file.path, "--json").out)["runs"]
    assert found["hparams"] == {"lr": 0.1, "model": "cnn\x1b[31m", "flip": True}
    assert found["others"] == []


def test_steps_that_go_back_are_shown_from_the_least_to_the_greatest(run_file, run) -> None:
    file = run_file("a")
    for step in (0, 1, 2, 3, 10, -5, 6):
        file.add(step, summary.histogram_value("weights", [1.0, 2.0]), loss=1.0)
    out = run("show", file.path).out
    assert out.count(" -5..10") == 2
    shown = json.loads(run("show", file.path, "--json").out)["runs"][0]
    for found in (*shown["scalars"], *shown["others"]):
        assert (found["first_step"], found["last_step"]) == (-5, 10)


def test_runs_are_in_natural_order(run_file, run, tmp_path) -> None:
    names = [*(f"r{index}" for index in range(12)), *(f"r{rate}" for rate in (12.02, 12.1, 12.15))]
    for index, name in enumerate(reversed(names)):
        run_file(name).add(index, loss=1.0)
    for command in ("show", "compare"):
        rows = run(command, tmp_path).out.splitlines()[1:]
        assert [row.split()[0] for row in rows] == names
    assert [it["run"] for it in json.loads(run("plot", tmp_path, "--json").out)] == names


def test_a_single_run_has_one_name(run_file, run) -> None:
    path = run_file("a").add(1, loss=1.0).directory
    [shown] = json.loads(run("show", path, "--json").out)["runs"]
    [compared] = json.loads(run("compare", path, "--json").out)
    assert shown["run"] == compared["run"] == str(path)
