import json


def test_a_row_a_run_with_last_and_best_values(run_file, run, tmp_path) -> None:
    for name, losses in (("a", [3.0, 1.0, 2.0]), ("b", [5.0, 4.0])):
        file = run_file(name)
        for step, loss in enumerate(losses):
            file.add(step, loss=loss, rate=0.5)
    titles, a, b = run("compare", tmp_path).out.splitlines()
    assert titles.split() == ["run", "last", "step", "long", "loss", "loss", "↓", "rate"]
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


def test_a_thousand_runs(run_file, run, tmp_path) -> None:
    for index in range(1000):
        run_file(f"sweep/{index:03}").add(index, loss=float(index), accuracy=1.0)
    compared = run("compare", tmp_path)
    assert compared.status == 0
    lines = compared.out.splitlines()
    assert len(lines) == 1001
    assert lines[-1].split()[:2] == ["sweep/999", "999"]
