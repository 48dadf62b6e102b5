"""Reading the runs that a command line names, and saying what is wrong with the names."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from runhooks import events
from runhooks.cli.command_error import CommandError
from runhooks.cli.formats import count, listed
from runhooks.cli.output import complain
from runhooks.cli.progress import progress
from runhooks.near_names import did_you_mean, nearest, suggestion


class NamedRun(NamedTuple):
    """A run and the name that tells it from the other ones of the command line."""

    name: str
    run: events.Run


def read_runs(
    paths: Sequence[Path], tags: Sequence[str] | None = None, kind: str | None = None
) -> list[NamedRun]:
    """Return the runs at ``paths``, each once, with what is of ``tags`` and ``kind``.

    Damage is skipped, and mentioned on stderr. Raises CommandError for a path where no run is, for
    a pattern that is no tag's, and if there is nothing of ``kind``.
    """
    found: dict[Path, NamedRun] = {}
    for path in paths:
        runs = _read(path, tags, kind)
        for run in runs.values():
            named = NamedRun(_name(run, runs, alone=len(paths) == 1), run)
            found.setdefault(run.path.resolve(), named)
    _check_tags([it.run for it in found.values()], paths, tags, kind)
    return list(found.values())


def read_one(path: Path, tags: Sequence[str] | None = None, kind: str | None = None) -> events.Runs:
    """Return the runs at ``path``, as ``read_runs`` does."""
    runs = _read(path, tags, kind)
    _check_tags(runs.values(), [path], tags, kind)
    return runs


def _read(path: Path, tags: Sequence[str] | None, kind: str | None) -> events.Runs:
    check_exists(path)
    with progress(path):
        runs = events.read(path, tags=tags, kinds=kind)
    if not runs:
        raise CommandError(f"there is no event file in {path}")
    mention_damage(path, runs.damages)
    return runs


def _check_tags(
    runs: Iterable[events.Run],
    paths: Sequence[Path],
    patterns: Sequence[str] | None,
    kind: str | None,
) -> None:
    runs = list(runs)
    for message in missing_tags(runs, paths, patterns, kind):
        raise CommandError(message)
    if kind is not None and not any(run.tags for run in runs):
        where = " ".join(map(str, paths))
        raise CommandError(f"there is no {kind} in {where}: see runhooks show")


def missing_tags(
    runs: Iterable[events.Run],
    paths: Sequence[Path],
    patterns: Sequence[str] | None,
    kind: str | None,
) -> Iterator[str]:
    """Yield, for each of ``patterns`` that is no tag's of ``runs``, a sentence that says so."""
    tags = {tag for run in runs for tag in run.tags}
    for pattern in patterns or ():
        if not any(matches(tag, pattern) for tag in tags):
            yield _no_such_tag(pattern, paths, kind)


def check_exists(path: Path) -> None:
    """Raise CommandError, with names like it, if there is nothing at ``path``."""
    if os.path.lexists(path):
        return
    missing = path
    while missing.parent != missing and not os.path.lexists(missing.parent):
        missing = missing.parent
    try:
        names = [it.name for it in missing.parent.iterdir()]
    except OSError:
        names = []
    near = [str(missing.with_name(name)) for name in nearest(missing.name, names)]
    raise CommandError(f"there is no {path}{did_you_mean(near)}")


def mention_damage(path: Path, damages: Collection[events.Damage]) -> None:
    """Say on stderr that something was skipped, if it was."""
    if damages:
        places = count(len(damages), "damaged place")
        skipped = sum(it.skipped for it in damages)
        complain(f"skipped {places}, {count(skipped, 'byte')}, in {path}: see runhooks check")


def _name(run: events.Run, runs: events.Runs, alone: bool) -> str:
    if not alone or (len(runs) == 1 and run.name == "."):
        return os.path.normpath(runs.path / run.name)
    return run.name


def _no_such_tag(pattern: str, paths: Sequence[Path], kind: str | None) -> str:
    where = " ".join(map(str, paths))
    tags = {
        tag: about.kind
        for path in paths
        for run in events.read(path).values()
        for tag, about in run.tags.items()
    }
    if kind is not None and (others := [it for it in tags if matches(it, pattern)]):
        return f"tag {others[0]!r} in {where} is of kind {tags[others[0]]}, not {kind}"
    known = [tag for tag in tags if kind in (None, tags[tag])]
    return no_such("tag", pattern, known, f" in {where}")


def no_such(noun: str, pattern: str, known: Collection[str], where: str) -> str:
    """Return a sentence that says that ``pattern`` is none of those ``known``."""
    if meant := suggestion(pattern.strip("*"), known):
        return f"no {noun} {pattern!r}{where}{meant}"
    return f"no {noun} {pattern!r}{where}, which has {listed([*known])}"


def matches(tag: str, pattern: str) -> bool:
    """Return whether ``tag`` is called ``pattern``, or is as this pattern of a shell says."""
    return tag == pattern or fnmatchcase(tag, pattern)
