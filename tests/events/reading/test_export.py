"""Scalars in pandas, Arrow, Parquet, CSV and JSON lines, of one run and of several."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from runhooks.events import Runs, read
from runhooks.events.reading.table import json_number

Write = Callable[..., Path]
Make = Callable[..., Any]

LONG = ["run", "tag", "step", "wall_time", "value"]
ROWS = [
    ["a", "loss", 1, 10.0, 0.5],
    ["a", "loss", 2, 11.0, math.nan],
    ["a", "loss", 2, 12.0, 0.25],
    ["a", "rate", 2, 11.5, -math.inf],
    ["b", "loss", 1, 20.0, 3.0],
    ["b", "züge", 7, 21.0, 1e-3],
]


@pytest.fixture
def runs(tmp_path: Path, write: Write, scalar: Make) -> Runs:
    for run, tag, step, wall_time, value in ROWS:
        event = scalar(tag, value, step, wall_time)
        write(event, name=f"runs/{run}/events.out.tfevents.1")
    return read(tmp_path / "runs")


def approx(rows: list[list[Any]]) -> list[list[Any]]:
    return [
        [pytest.approx(cell, nan_ok=True) if isinstance(cell, float) else cell for cell in row]
        for row in rows
    ]


def test_pandas(runs: Runs) -> None:
    frame = runs.to_pandas()
    assert list(frame.columns) == LONG
    assert frame.to_numpy().tolist() == approx(ROWS)
    assert [str(frame[name].dtype) for name in LONG[2:]] == ["int64", "float64", "float64"]
    assert runs["a"].to_pandas().to_numpy().tolist() == approx(ROWS[:4])


def test_wide_pandas(runs: Runs) -> None:
    frame = runs.to_pandas(wide=True)
    assert list(frame.columns) == ["run", "step", "loss", "rate", "züge"]
    nan = math.nan
    assert frame.to_numpy().tolist() == approx(
        [
            ["a", 1, 0.5, nan, nan],
            ["a", 2, 0.25, -math.inf, nan],
            ["b", 1, 3.0, nan, nan],
            ["b", 7, nan, nan, 1e-3],
        ]
    )


def test_arrow_and_parquet(runs: Runs, tmp_path: Path) -> None:
    table = runs.to_arrow()
    assert table.column_names == LONG
    assert table.schema.types == [pa.string(), pa.string(), pa.int64(), pa.float64(), pa.float64()]
    assert [list(row.values()) for row in table.to_pylist()] == approx(ROWS)
    runs.to_parquet(tmp_path / "long.parquet")
    assert parquet.read_table(tmp_path / "long.parquet").schema == table.schema
    runs.to_parquet(tmp_path / "wide.parquet", wide=True)
    wide = parquet.read_table(tmp_path / "wide.parquet")
    assert wide["rate"].to_pylist() == [None, -math.inf, None, None]
    assert wide["step"].to_pylist() == [1, 2, 1, 7]
    strange = tmp_path / os.fsdecode(b"\xff") / "x.parquet"
    strange.parent.mkdir()
    runs.to_parquet(strange)
    assert strange.read_bytes() == (tmp_path / "long.parquet").read_bytes()


def test_csv(runs: Runs, tmp_path: Path) -> None:
    runs.to_csv(tmp_path / "long.csv")
    assert (tmp_path / "long.csv").read_text(encoding="utf-8").splitlines()[:3] == [
        "run,tag,step,wall_time,value",
        "a,loss,1,10.0,0.5",
        "a,loss,2,11.0,nan",
    ]
    back = pd.read_csv(tmp_path / "long.csv")
    assert back.to_numpy().tolist() == approx(
        [[*row[:4], pytest.approx(row[4], rel=1e-6, nan_ok=True)] for row in ROWS]
    )
    open_file = io.StringIO()
    runs["a"].to_csv(open_file, wide=True)
    assert open_file.getvalue() == "run,step,loss,rate\na,1,0.5,\na,2,0.25,-inf\n"


def test_json_lines(runs: Runs, tmp_path: Path) -> None:
    runs.to_json_lines(tmp_path / "long.jsonl")
    lines = (tmp_path / "long.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == dict(zip(LONG, ROWS[0], strict=True))
    assert [json.loads(line)["value"] for line in lines[1:4]] == ["NaN", 0.25, "-Infinity"]
    assert "züge" in lines[-1]
    open_file = io.StringIO()
    runs.to_json_lines(open_file, wide=True)
    assert json.loads(open_file.getvalue().splitlines()[0]) == {"run": "a", "step": 1, "loss": 0.5}


TEXTS = st.text('aä,"\n\r\0 \N{BRAIN}', min_size=1, max_size=5)
POINTS = st.tuples(TEXTS, st.floats(width=32), st.integers(-(1 << 63), (1 << 63) - 1), st.floats())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(POINTS, max_size=8), st.booleans())
def test_any_table(
    tmp_path: Path, write: Write, scalar: Make, points: list[tuple[Any, ...]], wide: bool
) -> None:
    """The same bytes as of Python's own writers."""
    write().write_bytes(b"")
    write(*(scalar(*point) for point in points))
    run = read(tmp_path).only
    frame = run.to_arrow(wide)
    found, expected = io.StringIO(), io.StringIO()
    run.to_csv(found, wide)
    writer = csv.writer(expected, lineterminator="\n")
    writer.writerow(frame.column_names)
    writer.writerows(list(row.values()) for row in frame.to_pylist())
    assert found.getvalue() == expected.getvalue()
    found = io.StringIO()
    run.to_json_lines(found, wide)
    for line, row in zip(found.getvalue().split("}\n")[:-1], frame.to_pylist(), strict=True):
        plain = {
            name: json_number(value) if isinstance(value, float) else value
            for name, value in row.items()
            if value is not None
        }
        assert f"{line}}}" == json.dumps(plain, ensure_ascii=False)


@pytest.mark.parametrize("wide", [False, True])
def test_nothing_to_export(tmp_path: Path, wide: bool) -> None:
    runs = read(tmp_path)
    names = ["run", "step"] if wide else LONG
    assert list(runs.to_pandas(wide).columns) == names
    assert runs.to_arrow(wide).schema.field("run").type == pa.string()
    open_file = io.StringIO()
    runs.to_csv(open_file, wide)
    assert open_file.getvalue() == ",".join(names) + "\n"
    runs.to_json_lines(open_file, wide)
    assert open_file.getvalue() == ",".join(names) + "\n"


def test_a_tag_that_is_called_as_a_column(tmp_path: Path, write: Write, scalar: Make) -> None:
    write(scalar("step", 1, 1))
    with pytest.raises(ValueError, match="'step'"):
        read(tmp_path).to_csv(io.StringIO(), wide=True)
    assert len(read(tmp_path).to_pandas()) == 1


@pytest.mark.parametrize(
    ("missing", "call"),
    [("pandas", Runs.to_pandas), ("pyarrow", Runs.to_arrow)],
)
def test_what_is_missing_is_said(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, missing: str, call: Callable[..., Any]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=f"pip install {missing}"):
        call(runs)
