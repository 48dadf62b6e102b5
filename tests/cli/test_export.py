import csv
import io
import json
import os
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet
import pytest

from runhooks import summary
from runhooks.stores.path import StorePath

POINTS = [("a", "loss", 1, 2.0), ("a", "loss", 2, 0.10000000149011612), ("b", "rate", 1, 3.0)]
ONE_FORMAT = "one of --csv, --jsonl and --parquet"


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


def test_parquet_and_what_is_said_of_it(run, runs) -> None:
    exported = run("export", runs, "--parquet", "-o", runs / "x.parquet")
    assert exported.status == 0
    assert exported.out.startswith(f"{runs}/x.parquet: 3 points of 2 runs, ")
    table = pyarrow.parquet.read_table(runs / "x.parquet").to_pydict()
    columns = (table[name] for name in ("run", "tag", "step", "value"))
    assert list(zip(*columns, strict=True)) == POINTS


def test_of_chosen_tags_into_a_file(run, runs) -> None:
    exported = run("export", runs, "--csv", "--tag", "ra*", "-o", runs / "x.csv", "--json")
    written = json.loads(exported.out)
    assert (written["points"], written["path"]) == (1, str(runs / "x.csv"))
    assert written["size"] == (runs / "x.csv").stat().st_size
    assert "rate" in (runs / "x.csv").read_text()


def test_csv_is_the_format_without_another(run, runs) -> None:
    assert run("export", runs).out == run("export", runs, "--csv").out
    assert run("export", runs, "-o", "-").out == run("export", runs, "--csv").out


@pytest.mark.parametrize("output", [[], ["-o", "-"], ["-o", "/dev/stdout"]])
def test_a_pipe_gets_the_table_and_nothing_else(output, runs, start_piped) -> None:
    out, errors = start_piped("export", runs, "--parquet", *output).communicate()
    assert errors == b""
    table = pyarrow.parquet.read_table(io.BytesIO(out)).to_pydict()
    columns = (table[name] for name in ("run", "tag", "step", "value"))
    assert list(zip(*columns, strict=True)) == POINTS


def test_a_pipe_with_a_name_gets_it_too(run, runs, start_piped, tmp_path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    process = start_piped("export", runs, "-o", tmp_path / "x.csv")
    rows = list(csv.DictReader((tmp_path / "x.csv").read_text().splitlines()))
    assert [(r["run"], r["tag"], int(r["step"]), float(r["value"])) for r in rows] == POINTS
    assert process.communicate() == (b"", b"")


def test_a_terminal_gets_no_binary_file(runs, terminal) -> None:
    shown = terminal("export", runs, "--parquet")
    assert shown.finish() == 2
    assert "--parquet needs -o FILE, or a pipe, as well" in " ".join(shown.lines)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--csv", "--jsonl"], ONE_FORMAT),
        (["-o", "x.txt"], ONE_FORMAT),
        (["--csv", "--json"], "--json"),
        (["--csv", "-o", "/no/such/folder/x"], "/no/such/folder/x: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_said(run, runs, options, named) -> None:
    exported = run("export", runs, *options)
    assert (exported.status, exported.out) == (2, "")
    assert exported.errors.startswith("runhooks: ")
    assert named in exported.errors


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet", ".CSV"])
def test_the_ending_of_the_file_gives_the_format(run, runs, ending) -> None:
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
    assert "column 'step'" in wrong.errors


def test_hyper_parameters_are_columns(run_file, run, tmp_path) -> None:
    run_file("a").hparams(lr=0.1, model="cnn", flip=True).add(1, loss=2.0)
    run_file("b").hparams(lr=0.5, model="mlp").add(1, loss=3.0)
    rows = list(csv.DictReader(io.StringIO(run("export", tmp_path, "--csv", "--hparams").out)))
    assert [(r["value"], r["hparams/lr"], r["hparams/model"], r["hparams/flip"]) for r in rows] == [
        ("2.0", "0.1", "cnn", "True"), ("3.0", "0.5", "mlp", "")
    ]  # fmt: skip
    options = ["--wide", "--hparams", "--tag", "loss", "-o", tmp_path / "x.parquet"]
    assert run("export", tmp_path, *options).status == 0
    table = pyarrow.parquet.read_table(tmp_path / "x.parquet").to_pydict()
    assert table["loss"] == [2.0, 3.0]
    assert table["hparams/lr"] == [0.1, 0.5]
    assert table["hparams/flip"] == [True, None]
    assert "hparams" not in run("export", tmp_path, "--csv").out


def test_ctrl_c_leaves_nothing_under_the_final_name(run_file, terminal, tmp_path) -> None:
    file = run_file("a").add(1, loss=1.0)
    (tmp_path / "old.csv").write_text("as it was")
    interrupted = """
import time
from runhooks.events.reading import table
def slow(columns, wide):
    yield ["half of it" * 10_000]
    print("begun", flush=True)
    time.sleep(60)
table._rows = slow
"""
    for name in ("new.csv", "old.csv"):
        exporting = terminal("export", file.path, "-o", tmp_path / name, first=interrupted)
        exporting.wait_for("begun")
        exporting.type("\x03")
        assert exporting.finish() != 0
    assert sorted(it.name for it in tmp_path.iterdir()) == ["a", "old.csv"]
    assert (tmp_path / "old.csv").read_text() == "as it was"


def test_what_is_there_is_replaced_and_keeps_its_mode_and_link(run, runs) -> None:
    (runs / "x.csv").write_text("old")
    (runs / "x.csv").chmod(0o640)
    (runs / "link.csv").symlink_to("x.csv")
    assert run("export", runs, "-o", runs / "link.csv").status == 0
    assert (runs / "link.csv").is_symlink()
    assert (runs / "x.csv").read_text().startswith("run,tag")
    assert (runs / "x.csv").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_to_a_store(run, runs, ending) -> None:
    url = f"memory://{uuid4()}/x.{ending}"
    exported = run("export", runs, "-o", url)
    assert (exported.status, exported.errors) == (0, "")
    assert exported.out.startswith(f"{url}: 3 points of 2 runs, ")
    assert run("export", runs, "-o", runs / f"x.{ending}").status == 0
    assert StorePath(url).read_bytes() == (runs / f"x.{ending}").read_bytes()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device there")
@pytest.mark.parametrize("option", ["--csv", "--jsonl"])
def test_an_error_of_a_full_disk_names_the_file(run_file, run, option) -> None:
    exported = run("export", run_file("a").add(1, loss=1.0).path, option, "-o", "/dev/full")
    assert exported.status == 2
    assert "/dev/full: No space left on device" in exported.errors


def test_a_terminal_gets_no_escapes_from_the_data(run_file, run, terminal) -> None:
    file = run_file("a").add(1, summary.scalar_value("\x1b[31mred\x9b1m", 1.0))
    for option in ("--csv", "--jsonl"):
        exported = terminal("export", file.path, option)
        assert exported.finish() == 0
        assert b"\x1b[31m" not in exported.sent
        assert b"\xc2\x9b" not in exported.sent
        assert "red" in "".join(exported.lines)
    assert "\x1b[31mred" in run("export", file.path, "--csv").out  # data stays data
