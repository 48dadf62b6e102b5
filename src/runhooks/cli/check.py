"""``runhooks check`` and ``runhooks checkpoints``: whether files are sound."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import typer

from runhooks import events
from runhooks.checkpoint.files import size_below
from runhooks.checkpoint.format import (
    Checkpoint,
    StoredCheckpoint,
    find_checkpoints,
    holds_hook_states,
    looks_like_checkpoint,
    tensorflow_checkpoint_near,
)
from runhooks.checkpoint.manifest import ArraySpec
from runhooks.cli import output
from runhooks.cli.output import Column
from runhooks.cli.runs import Json, RunPath, check_exists, path_argument
from runhooks.errors import DataLossError, NotFoundError
from runhooks.stores.path import AnyPath

_FEW_FILES = 10
_COUNTED = {"DAMAGED": "damaged", "STEPS GO BACK": "whose steps go back", "empty": "empty"}


def check(run: RunPath, json: Json = False) -> None:
    """Check whether event files are sound.

    Every checksum is verified. The status is 1 if a file is damaged, holds records that make no
    sense, or has curves that go back to an earlier step where no session was started again. A last
    record that is cut off is no fault: it may be being written. Of more than ten files only those
    that are not sound are listed.
    """
    check_exists(run)
    with output.progress(run):
        reports = events.check(run)
    if not reports:
        raise output.CommandError(f"there is no event file in {run}")
    if json:
        output.write_json([{**it._asdict(), "sound": it.sound} for it in reports])
    else:
        _write_reports(reports)
    if not all(it.sound for it in reports):
        raise typer.Exit(1)


def _write_reports(reports: Sequence[events.FileReport]) -> None:
    verdicts = [_verdict(it) for it in reports]
    listed = [it for it in reports if len(reports) <= _FEW_FILES or _verdict(it) != "sound"]
    if listed:
        styles = ["green" if it.sound else "bold red" for it in listed]
        output.write_table(
            [
                Column("file", [output.printable(it.path) for it in listed], left=True),
                Column("size", [output.size(it.size) for it in listed], rank=2),
                Column("records", [str(it.records) for it in listed], rank=1),
                Column("", [_verdict(it) for it in listed], left=True, styles=styles),
            ]
        )
    for report in reports:
        if remarks := list(_remarks(report)):
            output.write()
            output.write(output.printable(report.path), "bold")
            for remark in remarks:
                output.say(f"  {remark}")
    if listed:
        output.write()
    counts = [f"{verdicts.count(it)} {what}" for it, what in _COUNTED.items() if it in verdicts]
    output.say(f"{output.count(len(reports), 'file')}, {', '.join(counts) or 'all sound'}")


def _verdict(report: events.FileReport) -> str:
    if report.damages or report.errors:
        return "DAMAGED"
    if report.folds:
        return "STEPS GO BACK"
    return "sound" if report.size else "empty"


def _remarks(report: events.FileReport) -> Iterator[str]:
    for it in report.damages:
        if it.skipped:
            skipped = output.count(it.skipped, "byte")
            yield f"damaged at byte {it.offset}, {skipped} skipped: {it.reason}"
        else:
            yield f"from byte {it.offset} on {it.reason}" if it.offset else it.reason
    for it in report.errors:
        yield f"record at byte {it.offset}, {output.count(it.skipped, 'byte')}: {it.reason}"
    for fold in report.folds:
        tag = output.tag(fold.tag)
        yield f"{tag} goes back from step {fold.step} to {fold.next_step}; no session started there"
    if report.folds:
        yield (
            "steps go back: the run was started again without a START, which purge_step of a "
            "SummaryWriter and add_session_log of a FileWriter write; or several processes wrote "
            "one tag; or a lower step was written after a higher one"
        )
    if report.partial:
        partial = output.count(report.partial, "byte")
        yield f"the last record is cut off after {partial}: it is being written, or its writer died"


class _Array(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    size: int  # in bytes


class _Report(NamedTuple):
    """A checkpoint; fields that its ``fault``, if any, makes unreadable are empty."""

    path: AnyPath
    step: int | None
    wall_time: float
    size: int
    fault: str | None
    arrays: dict[str, _Array]
    metrics: dict[str, float]
    states: list[str]  # the names of hooks and inputs
    ranks: int = 1


def _inspect(checkpoint: Checkpoint) -> _Report:
    path = checkpoint.path
    step = None if checkpoint.step < 0 else checkpoint.step
    about = _Report(path, step, checkpoint.wall_time, 0, None, {}, {}, [])
    try:
        about = about._replace(size=size_below(path))
        stored = StoredCheckpoint(path)
        about = about._replace(
            arrays={name: _array(spec) for name, spec in stored.specs.items()},
            metrics=dict(stored.manifest.metrics),
            ranks=stored.manifest.ranks,
        )
        return about._replace(states=stored.check())
    except DataLossError as error:
        return about._replace(fault=error.message.partition(" is damaged: ")[2])
    except FileNotFoundError:
        raise
    except OSError as error:
        return about._replace(fault=f"it cannot be read: {error.strerror}")


def _array(spec: ArraySpec) -> _Array:
    bits = re.search(r"\d+", spec.dtype)  # of float8_e4m3fn: 8; bool has none
    item_bytes = (int(bits[0]) + 7) // 8 if bits else 1
    return _Array(spec.dtype, spec.shape, item_bytes * math.prod(spec.shape))


_DIRECTORY = "A directory of checkpoints, or one checkpoint; a path or a URL."
_Directory = Annotated[Any, path_argument("DIR", _DIRECTORY)]


def checkpoints(directory: _Directory, json: Json = False) -> None:
    """List checkpoints: what is in each, its size, whether it is sound.

    They are in the order of saving. Every checksum is verified. Of a single checkpoint the arrays
    are listed too. The status is 1 if one is damaged.
    """
    hint = tensorflow_checkpoint_near(directory)
    if hint is None:
        check_exists(directory)
    alone = looks_like_checkpoint(directory) and not holds_hook_states(directory)
    path = directory.resolve() if alone else directory
    with output.progress(path):
        found = _reports(path.parent if alone else path, path if alone else None)
    if not found:
        raise output.CommandError(hint or f"there is no checkpoint in {directory}")
    if json:
        output.write_json([{**it._asdict(), "sound": it.fault is None} for it in found])
    else:
        _write_list(found, alone)
        if alone:
            _write_content(found[0])
    if any(it.fault for it in found):
        raise typer.Exit(1)


def _reports(directory: AnyPath, only: AnyPath | None) -> list[_Report]:
    try:
        checkpoints = find_checkpoints(directory)
    except ValueError as error:  # of a newer format
        raise output.CommandError(str(error)) from error
    found = []
    for it in checkpoints:
        if only in (None, it.path):
            with suppress(NotFoundError, FileNotFoundError):  # removed since
                found.append(_inspect(it))
    return found


def _write_list(found: Sequence[_Report], alone: bool) -> None:
    sound = [it.path for it in found if it.fault is None and not alone]
    values = [sum(math.prod(array.shape) for array in it.arrays.values()) for it in found]
    metrics = [
        " ".join(f"{name} {output.number(value)}" for name, value in it.metrics.items())
        for it in found
    ]
    verdicts = ["DAMAGED" if it.fault else "sound" for it in found]
    styles = ["bold red" if it.fault else "green" for it in found]
    columns = [
        Column("checkpoint", [it.path.name for it in found], left=True),
        Column("step", ["" if it.step is None else str(it.step) for it in found]),
        Column("saved", [output.date(it.wall_time) for it in found], rank=3),
        Column("size", [output.size(it.size) for it in found], rank=1),
        Column("arrays", [str(len(it.arrays)) for it in found], rank=4),
        Column("values", [*map(str, values)], rank=5),
        Column("metrics", metrics, rank=2, left=True),
        Column("", verdicts, left=True, styles=styles),
        Column("", ["latest" if it.path in sound[-1:] else "" for it in found], left=True),
    ]
    output.write_table(columns)
    for it in found:
        if it.fault:
            output.say(f"{it.path.name}: {it.fault}", "red")


def _write_content(checkpoint: _Report) -> None:
    names = sorted(checkpoint.arrays)
    arrays = [checkpoint.arrays[name] for name in names]
    if arrays:
        output.write()
        shapes = ["x".join(map(str, it.shape)) or "scalar" for it in arrays]
        output.write_table(
            [
                Column("array", names, left=True),
                Column("dtype", [it.dtype for it in arrays], left=True),
                Column("shape", shapes, left=True),
                Column("size", [output.size(it.size) for it in arrays]),
            ]
        )
    if checkpoint.ranks > 1:
        output.write()
        output.say(f"saved by {checkpoint.ranks} ranks")
    if checkpoint.states:
        output.write()
        output.say(f"states of {', '.join(checkpoint.states)}")
