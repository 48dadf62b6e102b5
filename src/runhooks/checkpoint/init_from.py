"""``InitFrom``: lets a new run start from the weights of another."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from runhooks import arguments
from runhooks.arrays.array_library import dtype_named, is_same_kind
from runhooks.arrays.shards import Share
from runhooks.arrays.trees import cast
from runhooks.checkpoint.averages import averages_in, is_average
from runhooks.checkpoint.names import Only, Renaming, first_of, is_run_state, other_names
from runhooks.checkpoint.retention import Choice, Mode
from runhooks.checkpoint.weights import Weights, read_weights
from runhooks.contract import RawSession, Snapshot
from runhooks.near_names import suggestion

_log = logging.getLogger("runhooks")


@dataclass(frozen=True)
class InitFrom:
    """The weights from which a new run starts, for ``Scaffold(init_from=...)``.

        pretrained = rh.InitFrom("runs/a", only="!state/params/head")
        scaffold = rh.Scaffold(init_from=pretrained)

    They are read if the session has no checkpoint of its own to restore, after ``init_op`` and
    before ``init_fn``. The log lists what was taken and what was not. The global step and the
    states of hooks and inputs are never taken: the averages of an ``EmaHook`` begin anew, from
    these weights. On an ``rh.torch`` graph, only modules are taken.

    Args:
        path: What to read, as for ``load``.
        only: The arrays to take, as for ``load``, by their names in the source.
        rename: New names by the names in the source, such as ``{"backbone": "state/params/body"}``;
            names below them change too. ``{"": "model/"}`` puts ``model/`` before every name.
        missing: ``"error"``: an array that only the source or only the model has is an error;
            ``"keep"``: it is left out.
        step: As for ``load``.
        best: As for ``load``.
        mode: As for ``load``.

    Raises:
        TypeError, ValueError: An argument is wrong.
    """

    path: str | os.PathLike[str]
    only: str | Iterable[str] | None = None
    rename: Mapping[str, str] | None = None
    missing: str = "error"
    step: int | None = None
    best: str | None = None
    mode: Mode | None = None

    def __post_init__(self) -> None:
        arguments.given(path=self.path)
        arguments.directory(path=self.path)
        if not isinstance(self.only, str | None):
            object.__setattr__(self, "only", list(self.only))  # it is gone through again
        Only(self.only)
        arguments.instance(Mapping, rename=self.rename)
        if self.missing not in ("error", "keep"):
            raise ValueError(f"missing must be 'error' or 'keep', got {self.missing!r}")
        Choice(self.step, self.best, self.mode)

    def load_into(self, sess: RawSession) -> None:
        """Load the weights into the variables and objects of ``sess``, all or none of them.

        Raises:
            NotFoundError: There is no such checkpoint or file.
            DataLossError: It is damaged.
            ValueError: A name matches nothing, or an array has another shape.
        """
        # Of arrays that several processes hold, the forms are known, and no more is needed.
        present = sess.snapshot(share=Share(0, 1))
        choice = Choice(self.step, self.best, self.mode)
        known = _weights_of(present, averages_in(sess.graph))
        found = read_weights(self.path, choice, lambda it: self._found(it, present, known))
        sess.assign(found.arrays)
        left = [name for name in known if name not in found.arrays]
        kept = f"; not from there: {_listed(left, present.arrays)}" if left else ""
        there = [*found.unused, *found.arrays]
        unused = f"; not used: {_listed(found.unused, there)}" if found.unused else ""
        shown = _listed(found.arrays, present.arrays)
        _log.info("initialized from %s: %s%s%s", found.origin, shown, kept, unused)

    def _found(self, weights: Weights, present: Snapshot, known: Collection[str]) -> _Found:
        only, renaming = Only(self.only), Renaming(self.rename or {})
        usable = [name for name in weights.names if name not in weights.of_run]
        chosen = only.of(usable, weights)
        renaming.check(chosen, weights)
        places = {it: name for it, name in other_names(present.states).items() if name in known}
        places.update((name, name) for name in known)
        sources: dict[str, str] = {}
        unused = []
        for name, new_name in renaming.applied(chosen).items():
            place = places.get(new_name)
            if place is None:
                unused.append(new_name)
            elif new_name == place or place not in sources:
                sources[place] = name
        lacking = [
            name
            for name in known
            if name not in sources and (old := renaming.old(name)) is not None and only.takes(old)
        ]
        if not sources:
            raise _misfit(weights, unused, lacking, known)
        misfits = [name for name in unused if not is_average(name, weights.averages)]
        if self.missing == "error" and (misfits or lacking):
            raise _misfit(weights, misfits, lacking, known)
        _check_forms(weights, sources, present)
        read = weights.read(sources.values())
        arrays = {it: cast(read[name], present.arrays[it].dtype) for it, name in sources.items()}
        return _Found(str(weights), arrays, unused)


class _Found(NamedTuple):
    """Arrays for a model by their names there, and the names of those it has no place for."""

    origin: str
    arrays: dict[str, NDArray[Any]]
    unused: Sequence[str]


def _weights_of(present: Snapshot, averages: Collection[str]) -> list[str]:
    """Return the names of the arrays that are the weights of a model, not the state of a run."""
    return [
        name
        for name in present.arrays
        if not is_run_state(name, present.states) and not is_average(name, averages)
    ]


def _check_forms(weights: Weights, sources: Mapping[str, str], present: Snapshot) -> None:
    problems = {}
    for place, name in sources.items():
        mine, spec = present.arrays[place], weights.spec(name)
        if mine.shape != spec.shape or not is_same_kind(mine.dtype, dtype_named(spec.dtype)):
            own = f"{mine.dtype}{[*mine.shape]}"
            problems[name] = f"{place!r} is {own}, {name!r} there {spec.dtype}{[*spec.shape]}"
    if problems:
        raise ValueError(
            f"init_from: {weights} does not fit the model: {first_of(list(problems.values()))}; to "
            f"leave a part out: only='!{next(iter(problems))}'"
        )


def _misfit(
    weights: Weights, unused: Sequence[str], lacking: Sequence[str], known: Collection[str]
) -> ValueError:
    problems = []
    cure = "say what to take with only and rename, or give missing='keep'"
    if unused:
        near = suggestion(unused[0], known)
        shown = first_of([name or "an array without a name" for name in unused])
        problems.append(f"the model has no place for {shown}{near}")
        if average := next((it for it in weights.averages if is_average(unused[0], [it])), None):
            rename = {average: weights.averages[average]}
            cure = f"averages begin anew; to begin with these as weights, give rename={rename}"
    if lacking:
        problems.append(f"it has nothing for {first_of(lacking)}")
    return ValueError(
        f"init_from: {weights} does not fit the model: {', and '.join(problems)}; {cure}"
    )


def _listed(names: Collection[str], everything: Iterable[str]) -> str:
    """Return ``names`` for the log: of those that are all below one name, that name alone."""
    of_all = Counter(prefix for name in everything for prefix in _prefixes(name))
    here = Counter(prefix for name in names for prefix in _prefixes(name))
    whole = Counter(
        next(prefix for prefix in _prefixes(name) if here[prefix] == of_all[prefix])
        for name in names
    )
    return first_of([f"{it} ({n} arrays)" if n > 1 else it for it, n in whole.items()])


def _prefixes(name: str) -> list[str]:
    """Return the names that ``name`` is below, the shortest first, and ``name`` itself."""
    return [*(name[: it.start()] for it in re.finditer(r"[/.]", name)), name]
