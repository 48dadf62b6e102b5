"""The runs that a command line names, and parameters of sub-commands."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple

import typer

from runhooks import events
from runhooks.cli.output import CommandError, complain, count, listed, progress
from runhooks.errors import DataLossError
from runhooks.events.place import place
from runhooks.near_names import suggestion
from runhooks.stores.path import AnyPath, StorePath, path_of


def anywhere(text: str) -> AnyPath:
    """Return the path or URL ``text``; raise CommandError for an unknown scheme."""
    try:
        return path_of(place(path=text))
    except (ImportError, ValueError) as error:
        raise CommandError(str(error)) from error


def path_argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, parser=anywhere, help=text, show_default=False)


def _globs(option: str, text: str) -> Any:
    return typer.Option(option, metavar="GLOB", help=text, show_default=False)


_ONE = "An event file, the directory of a run, or a directory above runs; a path or a URL."
_SEVERAL = "Event files, directories of runs, or directories above runs; paths or URLs."
_TAGS = "Only these tags, such as 'loss*'. May be given several times."
_LOWER = "Tags whose lowest value is the best, where the name does not tell."

RunPath = Annotated[Any, path_argument("RUN", _ONE)]
RunPaths = Annotated[list[Any], path_argument("RUN...", _SEVERAL)]
Tags = Annotated[list[str] | None, _globs("--tag", _TAGS)]
Lower = Annotated[list[str] | None, _globs("--min", _LOWER)]
Higher = Annotated[list[str] | None, _globs("--max", "Tags whose highest value is the best.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Kind = Literal["scalar"] | None

_MOST_FILES = 3


class NamedRun(NamedTuple):
    name: str
    run: events.Run


def read_runs(
    paths: Sequence[AnyPath], tags: Sequence[str] | None = None, kind: Kind = None
) -> list[NamedRun]:
    """Return the runs at ``paths``, each once; damage is skipped and mentioned on stderr.

    Raises CommandError if a path has no run, a pattern matches no tag, or nothing is of ``kind``.
    """
    found: dict[AnyPath, NamedRun] = {}
    for path in paths:
        runs = _read(path, tags, kind)
        for run in runs.values():
            name = _name(run, runs, alone=len(paths) == 1)
            found.setdefault(run.path.resolve(), NamedRun(name, run))
    named = list(found.values())
    _check_tags([it.run for it in named], paths, tags, kind)
    return named


def read_one(path: AnyPath, tags: Sequence[str] | None = None, kind: Kind = None) -> events.Runs:
    runs = _read(path, tags, kind)
    _check_tags([*runs.values()], [path], tags, kind)
    return runs


def _read(path: AnyPath, tags: Sequence[str] | None, kind: Kind) -> events.Runs:
    check_exists(path)
    with progress(path):
        runs = events.read(path, tags=tags, kinds=kind)
    if not runs:
        raise CommandError(f"there is no event file in {path}")
    _mention_damage(path, runs.damages)
    return runs


def hparams_of(run: events.Run) -> dict[str, Any]:
    """Return the hyper-parameters; if they are damaged, say so, and return none."""
    try:
        return run.hparams
    except (DataLossError, OSError) as error:
        complain(str(error))
        return {}


def _check_tags(
    runs: Sequence[events.Run],
    paths: Sequence[AnyPath],
    patterns: Sequence[str] | None,
    kind: Kind,
) -> None:
    tags = {tag for run in runs for tag in run.tags}
    for pattern in patterns or ():
        if not any(matches(tag, pattern) for tag in tags):
            raise CommandError(_no_such_tag(pattern, paths, kind))
    if kind is not None and not any(run.scalars for run in runs):
        where = " ".join(map(str, paths))
        raise CommandError(f"there is no {kind} in {where}: see runhooks show")


def check_exists(path: AnyPath) -> None:
    if not (path.exists() if isinstance(path, StorePath) else os.path.lexists(path)):
        raise CommandError(f"there is no file or directory {path}")


def _mention_damage(path: AnyPath, damages: Collection[events.Damage]) -> None:
    places = [it.skipped for it in damages if it.skipped]
    if places:
        said = f"{count(len(places), 'damaged place')}, {count(sum(places), 'byte')}"
        complain(f"skipped {said}, in {path}: see runhooks check")
    files = [it for it in damages if not it.skipped]
    for it in files[:_MOST_FILES]:
        complain(f"skipped {it.path}: {it.reason}")
    if (rest := len(files) - _MOST_FILES) > 0:
        complain(f"skipped {count(rest, 'more file')}, in {path}: see runhooks check")


def _name(run: events.Run, runs: events.Runs, alone: bool) -> str:
    if not alone or (len(runs) == 1 and run.name == "."):
        path = runs.path / run.name
        return str(path) if isinstance(path, StorePath) else os.path.normpath(path)
    return run.name


def _no_such_tag(pattern: str, paths: Sequence[AnyPath], kind: Kind) -> str:
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
    if meant := suggestion(pattern.strip("*"), known):
        return f"no {noun} {pattern!r}{where}{meant}"
    return f"no {noun} {pattern!r}{where}, which has {listed([*known])}"


def matches(tag: str, pattern: str) -> bool:
    return tag == pattern or fnmatchcase(tag, pattern)
