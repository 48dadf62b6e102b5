"""``load``: the arrays of a checkpoint without the graph and the session that saved it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

from runhooks.arrays.array_library import Flat
from runhooks.arrays.trees import Form, flatten, form_of, place
from runhooks.checkpoint.names import Only, first_of, nested
from runhooks.checkpoint.retention import Choice, Mode
from runhooks.checkpoint.weights import Weights, read_weights
from runhooks.near_names import suggestion

_log = logging.getLogger("runhooks")

#: What Flax puts behind the name of an array in a module that it shows to JAX as a tree.
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

        params = rh.load("runs/a", "state/params")
        params = rh.load("runs/a", "state/params", like=abstract_params)
        model.load_state_dict(rh.load("runs/a", "model", like=model.state_dict()))

    Only the requested arrays are kept in memory.

    Args:
        source: A directory of checkpoints, one checkpoint, a ``.safetensors`` file or the
            ``.index.json`` of several, an ``.npz`` file, or a ``.pt`` file of PyTorch, which is
            read with ``weights_only=True``.
        only: A name, to return what it names with everything below it; or a pattern with ``*``, or
            a list of names and patterns, to return what matches, nested from the top. A leading
            ``!`` excludes, as in ``"!state/opt_state"``. None: everything.
        like: The structure to return, with the wanted dtypes, devices or shardings: any tree of
            arrays or of ``jax.ShapeDtypeStruct``. Leaves that are neither arrays nor in the
            checkpoint are returned unchanged. An array without a place in it is left out, with a
            warning if ``only`` asks for it. None: NumPy arrays in dicts, with names split at
            ``/``; lists and tuples become dicts with the keys ``"0"``, ``"1"``.
        step: The global step of the checkpoint to read.
        best: Read the checkpoint with the best value of this metric, as for ``best_checkpoint``.
        mode: Whether the ``"max"`` or the ``"min"`` of the metric is best.

    Returns:
        The arrays; JAX random keys, without ``like``, as their data. They are from the newest
        undamaged checkpoint, unless ``step`` or ``best`` says otherwise.

    Raises:
        NotFoundError: There is no such checkpoint or file.
        DataLossError: It is damaged.
        ValueError: ``only`` or ``like`` names something that does not exist, a shape or dtype
            differs, or ``source`` is a file inside a checkpoint.
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
        if only is not None:
            _warn_of_rest(weights, names, sources)
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
    """Return the name of the array for each leaf of ``target``, None where there is none."""
    return [names.get(path, names.get(path.removesuffix(_FLAX_VALUE))) for path, _ in target.leaves]


def _warn_of_rest(
    weights: Weights, names: Mapping[str, str], sources: Iterable[str | None]
) -> None:
    same = weights.same
    taken = {same.get(name, name) for name in sources if name is not None}
    rest = [name for name in names.values() if same.get(name, name) not in taken]
    if rest:
        _log.warning("like has no place for these arrays of %s: %s", weights, first_of(rest))


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
    """Raise ValueError for arrays that are missing or have another shape."""
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
            problems.append(f"{path!r} is {_shown(form)}, {name!r} is {spec.dtype}{[*spec.shape]}")
    if not missing and not any(sources):
        missing = [_as_saved(path, names) for path, _ in target.leaves]
    if missing:
        near = suggestion(missing[0], names) or f", but for {first_of(list(names))}"
        problems.append(f"it has nothing for {first_of(missing)}{near}")
    if problems:
        raise ValueError(f"like does not fit {weights}: {first_of(problems)}")


def _as_saved(path: str, names: Iterable[str]) -> str:
    """Return the path of a leaf as checkpoints name it: variables of Flax are one level deeper."""
    has_values = any(name.endswith(_FLAX_VALUE) for name in names)
    return path if has_values else path.removesuffix(_FLAX_VALUE)


def _shown(form: Form) -> str:
    return f"{form.dtype or 'a number'}{[*form.shape] or ''}"
