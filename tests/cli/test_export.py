import csv
import io
import json

import pyarrow.parquet
import pytest

from runhooks import summary

POINTS = [("a", "loss", 1, 2.0), ("a", "loss", 2, 0.10000000149011612), ("b", "rate", 1, 3.0)]
ONE_FORMAT = "export takes one of --csv, --jsonl and --parquet, or -o FILE with such an ending"


@pytest.fixture
def runs(run_file, tmp_path):
    run_file("a").add(1, loss=2.0).add(2, loss=0.1)
    run_file("b").add(1, rate=3.0)
    return tmp_path


def test_csv(run, runs) -> None:
    exported = run("export", runs, "--csv")
    assert (exported.status, exported.errors) == (0, "")
    rows = list(csv.DictReader(io.StringIO(exported.out)))
    assert [(r["run"], r["tag"], int(r["step"]), float(r["value"])) for r in rows] == POINTS
    assert float(rows[0]["wall_time"]) == 1_700_000_001.0


def test_json_lines(run, runs) -> None:
    rows = [json.loads(line) for line in run("export", runs, "--jsonl").out.splitlines()]
    assert [(r["run"], r["tag"], r["step"], r["value"]) for r in rows] == POINTS


def test_parquet_and_what_is_said_of_it(run, runs) -> None:
    exported = run("export", runs, "--parquet", "-o", runs / "x.parquet")
    assert exported.status == 0
    assert exported.out.startswith(f"{runs}/x.parquet: 3 points of 2 runs, ")
    table = pyarrow.parquet.read_table(runs / "x.parquet").to_pydict()
    columns = (table[name] for name in ("run", "tag", "step", "value"))
    assert list(zip(*columns, strict=True)) == POINTS


def test_wide(run, runs) -> None:
    rows = list(csv.DictReader(io.StringIO(run("export", runs / "a", "--csv", "--wide").out)))
    assert [float(row["loss"]) for row in rows] == [2.0, 0.10000000149011612]


def test_of_chosen_tags_into_a_file(run, runs) -> None:
    exported = run("export", runs, "--csv", "--tag", "ra*", "-o", runs / "x.csv", "--json")
    written = json.loads(exported.out)
    assert (written["points"], written["path"]) == (1, str(runs / "x.csv"))
    assert written["size"] == (runs / "x.csv").stat().st_size
    assert "rate" in (runs / "x.csv").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], ONE_FORMAT),
        (["--csv", "--jsonl"], ONE_FORMAT),
        (["-o", "x.txt"], ONE_FORMAT),
        (["--parquet"], "--parquet takes -o FILE as well"),
        (["--csv", "--json"], "--json takes -o FILE as well"),
        (["--csv", "-o", "/no/such/folder/x"], "/no/such/folder/x: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_said(run, runs, options, message) -> None:
    exported = run("export", runs, *options)
    assert (exported.status, exported.out) == (2, "")
    assert exported.errors == f"runhooks: {message}\n"


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet", ".CSV"])
def test_the_ending_of_the_file_tells_the_format(run, runs, ending) -> None:
    named, told = runs / "named", runs / f"told{ending}"
    option = f"--{ending[1:].lower()}"
    assert run("export", runs / "a", option, "-o", named).status == 0
    assert run("export", runs / "a", "-o", told).status == 0
    assert told.read_bytes() == named.read_bytes()
    assert run("export", runs / "a", "--csv", "-o", told).status == 0  # an option has the last word
    assert told.read_text().startswith("run,tag,")


def test_a_tag_that_would_be_a_second_column_of_its_name(run_file, run) -> None:
    wrong = run(
        "export", run_file("a").add(1, summary.scalar_value("step", 1.0)).path, "--csv", "--wide"
    )
    assert (wrong.status, wrong.out) == (2, "")
    assert "has a column 'step' already" in wrong.errors
