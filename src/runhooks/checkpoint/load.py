"""``load`` and ``InitFrom``, which read the weights of another run or program."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from runhooks import arguments
from runhooks.arrays.array_library import Flat, dtype_named, is_same_kind
from runhooks.arrays.shards import Share
from runhooks.arrays.trees import cast, flatten, form_of, place
from runhooks.checkpoint.names import (
    Only,
    Renaming,
    averages_in,
    first_of,
    is_average,
    is_run_state,
    nested,
    other_names,
)
from runhooks.checkpoint.retention import Choice, Mode
from runhooks.checkpoint.weights import Weights, read_weights
from runhooks.contract import RawSession, Snapshot
from runhooks.near_names import suggestion

_log = logging.getLogger("runhooks")

# Ends the names of Flax's arrays in the tree of a module.
_FLAX_VALUE = "/value"


def load(
    source: str | os.PathLike[str],
    only: str | Iterable[str] | None = None,
    like: Any = None,
    *,
    step: int | None = None,
    best: str | None = None,
    mode: Mode | None = None,
) -> Any:
    """Return the arrays in a checkpoint or another weights file.

    Args:
        source: A directory of checkpoints, one checkpoint, or a ``.safetensors``,
            ``.index.json``, ``.npz`` or ``.pt`` file.
        only: A name, to return what it names with everything below it; or a pattern with ``*``, or
            a list of names and patterns, to return what matches, nested from the top. A leading
            ``!`` excludes. None: everything.
        like: A tree of arrays or of ``jax.ShapeDtypeStruct``, with the wanted structure, dtypes,
            devices or shardings. Leaves that are neither arrays nor in the checkpoint are returned
            unchanged. None: NumPy arrays in dicts, with names split at ``/``.
        step: The global step to read. None, without ``best``: the newest undamaged one.
        best: Read the checkpoint with the best value of this metric, as ``best_checkpoint``.
        mode: As for ``best_checkpoint``.

    Returns:
        The arrays; JAX random keys, without ``like``, as their data.

    Raises:
        NotFoundError: There is no such checkpoint or file.
        DataLossError: It is damaged.
        ValueError: ``only`` or ``like`` names something that does not exist, a shape or dtype does
            not fit, or ``source`` is a file inside a checkpoint.
        TypeError: An argument has the wrong type.
    """
    wanted, choice = Only(only), Choice(step, best, mode)
    target = None if like is None else _target(like)

    def read(weights: Weights) -> Any:
        names = wanted.relative(weights.names, weights)
        if target is None:
            arrays = weights.read(names.values())
            return nested({short: arrays[name] for short, name in names.items()})
        sources = _sources(names, target)
        found = _like(weights, names, target, sources)
        taken = {weights.same.get(name, name) for name in sources if name is not None}
        rest = [name for name in names.values() if weights.same.get(name, name) not in taken]
        if rest and only is not None:
            _log.warning("like has no place for these arrays of %s: %s", weights, first_of(rest))
        return found

    return read_weights(source, choice, read)


def _target(like: Any) -> Flat:
    flat = flatten(like)
    if not any(form_of(leaf) for _, leaf in flat.leaves):
        raise TypeError(
            f"like must be a tree of arrays, got {type(like).__name__}: of a module of torch, give "
            "its state_dict()"
        )
    return flat


def _sources(names: Mapping[str, str], target: Flat) -> list[str | None]:
    return [names.get(path, names.get(path.removesuffix(_FLAX_VALUE))) for path, _ in target.leaves]


def _like(
    weights: Weights, names: Mapping[str, str], target: Flat, sources: list[str | None]
) -> Any:
    _check(weights, names, target, sources)
    leaves = [leaf for _, leaf in target.leaves]
    places: dict[str, list[int]] = {}
    for index, name in enumerate(sources):
        if name is not None:
            places.setdefault(weights.same.get(name, name), []).append(index)
    for name, array in weights.stream(places.keys()):
        for index in places[name]:
            own = array if index == places[name][-1] else array.copy()
            try:
                leaves[index] = place(own, leaves[index])
            except ValueError as error:
                raise ValueError(f"{name!r} in {weights} does not fit like: {error}") from None
    return target.rebuild(leaves)


def _check(
    weights: Weights, names: Mapping[str, str], target: Flat, sources: list[str | None]
) -> None:
    missing, problems = [], []
    for (path, leaf), name in zip(target.leaves, sources, strict=True):
        form = form_of(leaf)
        path = _as_saved(path, names)
        if name is None:
            if form is not None and form.dtype is not None:
                missing.append(path)
        elif form is None:
            problems.append(f"{path!r} must be an array, got {leaf!r}")
        elif (spec := weights.spec(name)).shape != form.shape:
            own = f"{form.dtype or 'a number'}{[*form.shape] or ''}"
            problems.append(f"{path!r} is {own}, {name!r} is {spec}")
    if not missing and not any(sources):
        missing = [_as_saved(path, names) for path, _ in target.leaves]
    if missing:
        near = suggestion(missing[0], names) or f", but for {first_of(list(names))}"
        problems.append(f"it has nothing for {first_of(missing)}{near}")
    if problems:
        raise ValueError(f"like does not fit {weights}: {first_of(problems)}")


def _as_saved(path: str, names: Iterable[str]) -> str:
    """In checkpoints, variables of Flax are one level deeper."""
    has_values = any(name.endswith(_FLAX_VALUE) for name in names)
    return path if has_values else path.removesuffix(_FLAX_VALUE)


@dataclass(frozen=True)
class InitFrom:
    """The weights from which a new run starts, for ``Scaffold(init_from=...)``.

    They are read after ``init_op`` and before ``init_fn``, if no checkpoint is restored.

    Args:
        path: The source, as for ``load``.
        only: As for ``load``, by names in the source.
        rename: New names by those in the source; names below them change too.
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
            object.__setattr__(self, "only", list(self.only))
        Only(self.only)
        arguments.instance(Mapping, rename=self.rename)
        if self.missing not in ("error", "keep"):
            raise ValueError(f"missing must be 'error' or 'keep', got {self.missing!r}")
        Choice(self.step, self.best, self.mode)

    def load_into(self, sess: RawSession) -> None:
        """Load the weights into ``sess``, all or none. Raises as ``load``."""
        present = sess.snapshot(share=Share(0, 1))  # for forms alone
        choice, averages = Choice(self.step, self.best, self.mode), averages_in(sess.graph)
        known = [
            name
            for name in present.arrays
            if not is_run_state(name, present.states) and not is_average(name, averages)
        ]
        origin, found, extra = read_weights(
            self.path, choice, lambda it: self._found(it, present, known)
        )
        sess.assign(found)
        left = [name for name in known if name not in found]
        kept = f"; not from there: {_listed(left, present.arrays)}" if left else ""
        unused = f"; not used: {_listed(extra, [*extra, *found])}" if extra else ""
        shown = _listed(found, present.arrays)
        _log.info("initialized from %s: %s%s%s", origin, shown, kept, unused)

    def _found(
        self, weights: Weights, present: Snapshot, known: Collection[str]
    ) -> tuple[str, dict[str, NDArray[Any]], list[str]]:
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
        return str(weights), arrays, unused


def _check_forms(weights: Weights, sources: Mapping[str, str], present: Snapshot) -> None:
    problems = {}
    for it, name in sources.items():
        mine, spec = present.arrays[it], weights.spec(name)
        if mine.shape != spec.shape or not is_same_kind(mine.dtype, dtype_named(spec.dtype)):
            own = f"{mine.dtype}{[*mine.shape]}"
            problems[name] = f"{it!r} is {own}, {name!r} there {spec}"
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
    """Return names, or one for all that are below it."""
    of_all = Counter(prefix for name in everything for prefix in _prefixes(name))
    here = Counter(prefix for name in names for prefix in _prefixes(name))
    whole = Counter(
        next(prefix for prefix in _prefixes(name) if here[prefix] == of_all[prefix])
        for name in names
    )
    return first_of([f"{it} ({n} arrays)" if n > 1 else it for it, n in whole.items()])


def _prefixes(name: str) -> list[str]:
    return [*(name[: it.start()] for it in re.finditer(r"[/.]", name)), name]
