"""``results.json``: what a run of the benchmarks has found, and on what."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, cast

from bench.machine import Machine, commit, machine, versions
from bench.topics import Topic

SCHEMA = 1  # of the file; raised when what is in it changes its meaning


class Results(TypedDict):
    """``modified``: the code was changed since ``commit``. ``quick``: the figures say nothing."""

    schema: int
    date: str
    commit: str
    modified: bool
    quick: bool
    machine: Machine
    versions: dict[str, str]
    topics: dict[str, Topic]


def begin(quick: bool) -> Results:
    """Return results with no topics yet."""
    of_code, modified = commit()
    return Results(
        schema=SCHEMA,
        date=datetime.now(UTC).isoformat(timespec="minutes"),
        commit=of_code,
        modified=modified,
        quick=quick,
        machine=machine(),
        versions=versions(),
        topics={},
    )


def save(results: Results, path: Path) -> None:
    """Write results, with figures of four digits: more would not be true."""
    path.write_text(json.dumps(_rounded(results), indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> Results:
    """Read results.

    Raises:
        ValueError: The file has none, or those of another schema.
    """
    try:
        results = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}; make bench writes such a file") from error
    if not isinstance(results, dict) or results.get("schema") != SCHEMA:
        found = results.get("schema") if isinstance(results, dict) else None
        raise ValueError(f"{path} has schema {found}, not {SCHEMA}: write it anew with make bench")
    return cast(Results, results)


def updated(whole: Results, later: Results) -> Results:
    """Return ``whole`` with the topics of ``later``, which say when they were measured."""
    changed = ", with changes" if later["modified"] else ""
    again = f"{later['date']}, commit `{later['commit'][:12]}`{changed}"
    topics = {name: Topic(**topic, again=again) for name, topic in later["topics"].items()}
    return Results(**{**whole, "topics": whole["topics"] | topics})


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
