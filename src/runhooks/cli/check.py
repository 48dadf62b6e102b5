"""``runhooks check``: whether event files are sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import typer

from runhooks import events
from runhooks.cli import output
from runhooks.cli.output import Column
from runhooks.cli.runs import Json, RunPath, check_exists

_FEW_FILES = 10
_DAMAGED, _GOES_BACK, _SOUND, _EMPTY = "DAMAGED", "STEPS GO BACK", "sound", "empty"
_COUNTED = {_DAMAGED: "damaged", _GOES_BACK: "whose steps go back", _EMPTY: "empty"}


def check(run: RunPath, json: Json = False) -> None:
    """Check whether event files are sound.

    Every checksum is verified. The status is 1 if a file is damaged, holds records that make no
    sense, or has curves that go back to an earlier step where no session was started again. A last
    record that is cut off is not a fault: it may be being written. Of more than ten files only
    those are listed that are not sound.
    """
    check_exists(run)
    with output.progress(run):
        reports = events.check(run)
    if not reports:
        raise output.CommandError(f"there is no event file in {run}")
    if json:
        output.write_json([{**it._asdict(), "sound": it.sound} for it in reports])
    else:
        _write(reports)
    if not all(it.sound for it in reports):
        raise typer.Exit(1)


def _write(reports: Sequence[events.FileReport]) -> None:
    verdicts = [_verdict(it) for it in reports]
    listed = [it for it in reports if len(reports) <= _FEW_FILES or _verdict(it) != _SOUND]
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
    counts = ((verdicts.count(verdict), said) for verdict, said in _COUNTED.items())
    said = ", ".join(f"{count} {what}" for count, what in counts if count)
    output.say(f"{output.count(len(reports), 'file')}, {said or 'all sound'}")


def _verdict(report: events.FileReport) -> str:
    if report.damages or report.errors:
        return _DAMAGED
    if report.folds:
        return _GOES_BACK
    return _SOUND if report.size else _EMPTY


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
