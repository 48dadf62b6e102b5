"""``TorchObjects``: modules, optimizers and other objects that the steps of a graph change."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader

from runhooks import arguments
from runhooks.arrays.shards import Share, to_host
from runhooks.arrays.torch import ARRAYS, form, is_distributed
from runhooks.engines.conform import fitted
from runhooks.engines.torch.engine import Averages
from runhooks.engines.torch.states import (
    SEED,
    PendingGradients,
    RandomStates,
    StateAsDict,
    join,
    names_in,
    places_of_states,
    sharded_tensors,
    split,
    tensor_of,
    unwrapped,
)
from runhooks.errors import add_note
from runhooks.graph.objects import OBJECT_STATES, PENDING, RANDOM_STATES, Arrays, Resized
from runhooks.near_names import suggestion

_log = logging.getLogger("runhooks")


_RATE = "learning_rate"

Modules = Mapping[str, nn.Module]
Optimizers = Mapping[str, torch.optim.Optimizer]


class Part(Protocol):
    """A value inside an object."""

    def read(self) -> NDArray[Any]:
        """Return a copy of the value."""
        ...

    def converted(self, name: str, value: Any) -> Any:
        """Return ``value`` as the part takes it; raise ValueError if it does not fit."""
        ...

    def assign(self, value: Any) -> None:
        """Take a value that was converted."""
        ...


class TensorPart:
    """A tensor, which is changed in place."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def read(self) -> NDArray[Any]:
        return ARRAYS.to_numpy(self.tensor.detach()).copy()

    def converted(self, name: str, value: Any) -> torch.Tensor:
        array = fitted(name, value, ARRAYS.host_form(self.tensor))
        # Of one that several processes hold, each takes its part.
        placed: torch.Tensor = ARRAYS.place(array, self.tensor)
        return placed

    def assign(self, value: torch.Tensor) -> None:
        with torch.no_grad():
            self.tensor.copy_(value)


class RatePart:
    """The learning rate of a group of an optimizer, where it is a number of Python."""

    def __init__(self, group: dict[str, Any]) -> None:
        self._group = group

    def read(self) -> NDArray[Any]:
        return np.asarray(self._group["lr"])

    def converted(self, name: str, value: Any) -> float:
        return float(fitted(name, value, ((), np.dtype(float))))

    def assign(self, value: float) -> None:
        self._group["lr"] = value


def parts_of(modules: Modules, optimizers: Optimizers, name: str) -> dict[str, Part]:
    """Return the parts called ``name``, or below it, by their names.

    ``"learning_rate"`` is that of the only optimizer; each of its groups is a part.

    Raises:
        ValueError: If there are none.
    """
    known = dict(_parts(modules, optimizers))
    whole = name
    if name.partition("/")[0] == _RATE and len(optimizers) == 1:
        whole = f"{next(iter(optimizers))}/{name}"
    found = {key: part for key, part in known.items() if _is_within(key, whole)}
    if not found:
        rates = [f"{it}/{_RATE}" for it in optimizers]
        raise ValueError(
            f"no part of an object is named {name!r}{suggestion(name, [*known, *rates])}"
        )
    return found


def tensors_of(modules: Modules, name: str) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers called ``name``, or in the module of that name, by name.

    Raises:
        ValueError: If there are none.
    """
    found = parts_of(modules, {}, name)
    return {key: part.tensor for key, part in found.items() if isinstance(part, TensorPart)}


def assigner(
    modules: Modules, optimizers: Optimizers, values: Mapping[str, Any]
) -> Callable[[], None]:
    """Return a function that assigns ``values``, by the names of parts.

    Raises:
        ValueError: If there is no such part, or if a value does not fit.
    """
    parts = {name: parts_of(modules, optimizers, name) for name in values}
    if several := [name for name, found in parts.items() if len(found) > 1]:
        raise ValueError(f"{several[0]!r} has several parts, {[*parts[several[0]]]}: name one")
    new = [
        (part, part.converted(name, values[name]))
        for name, found in parts.items()
        for part in found.values()
    ]

    def assign() -> None:
        for part, value in new:
            part.assign(value)

    return assign


def _is_within(key: str, whole: str) -> bool:
    separators = "./" if "/" in whole else "/"  # "model/conv1.weight" is in "model/conv1"
    return key == whole or (key.startswith(whole) and key[len(whole)] in separators)


def _parts(modules: Modules, optimizers: Optimizers) -> Iterator[tuple[str, Part]]:
    for owner, module in modules.items():
        for path, parameter in module.named_parameters(remove_duplicate=False):
            yield f"{owner}/{path}", TensorPart(parameter)
        for path, buffer in module.named_buffers(remove_duplicate=False):
            yield f"{owner}/{path}", TensorPart(buffer)
    for owner, optimizer in optimizers.items():
        for number, group in enumerate(optimizer.param_groups):
            rate = group["lr"]
            part = TensorPart(rate) if isinstance(rate, torch.Tensor) else RatePart(group)
            yield f"{owner}/{_RATE}/{number}", part


#: Names that mean something else where values are fetched or saved by name.
_RESERVED = {"activations", "global_gradient_norm", "global_step", "gradients", "learning_rate"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class TorchObjects:
    """Objects by name, and the states of random generators as the object ``"random"``.

    Raises:
        TypeError: For an object without ``state_dict`` and ``load_state_dict``, or ``get_state``
            and ``set_state``.
        ValueError: For a name that is not allowed.
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        for name in objects:
            if not _NAME.fullmatch(name) or name in _RESERVED or name == RANDOM_STATES:
                raise ValueError(
                    f"an object must be named with letters, digits and '_', and not "
                    f"{', '.join(sorted({*_RESERVED, RANDOM_STATES}))}, got {name!r}"
                )
        self._objects = {name: unwrapped(it) for name, it in objects.items()}
        given = {name: _stateful(name, it) for name, it in self._objects.items()}
        self._random = RandomStates()
        self._saved = {**given, RANDOM_STATES: self._random}
        #: Those that steps have left which do not count.
        self.pending_gradients = PendingGradients(self.modules())
        self._averages: dict[str, Averages] = {}
        #: The steps, by name, as they were given.
        self.steps: dict[str, Callable[..., Any]] = {}
        #: How many steps were begun.
        self.begun = 0
        self._settled = 0
        self._is_preserving = False
        #: Whether it was logged in this session that compiled code runs eagerly in some runs.
        self.has_logged_eager = False

    def __repr__(self) -> str:
        return ", ".join(self._objects) or "no objects"

    @property
    def changed(self) -> bool:
        """As ``StatefulObjects.changed``."""
        return self.begun != self._settled

    def settle(self) -> None:
        """As ``StatefulObjects.settle``."""
        self._settled = self.begun
        self.has_logged_eager = False

    def keep_pending_gradients(self) -> None:
        """From now on save the gradients that steps which do not count have left."""
        self._saved[PENDING] = self.pending_gradients

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """As ``StatefulObjects.preserved``."""
        modes = [(it, it.training) for module in self.modules().values() for it in module.modules()]
        try:
            with nullcontext() if self._is_preserving else self._preserved_numbers():
                yield
        finally:
            for module, training in modes:
                if module.training is not training:
                    module.training = training

    @contextmanager
    def _preserved_numbers(self) -> Iterator[None]:
        self._is_preserving = True
        generators = [self._random, *[it for it in self._saved.values() if _is_generator(it)]]
        states = [it.state_dict() for it in generators]
        try:
            yield
        finally:
            self._is_preserving = False
            for generator, state in zip(generators, states, strict=True):
                generator.load_state_dict(state)

    def find(self, name: str) -> Any:
        """Return the module, parameter or buffer ``"<object>/<path>"``, or the object, or None."""
        owner, slash, path = name.partition("/")
        found = self._objects.get(owner)
        if not slash:
            return found
        if isinstance(found, nn.Module) and path:
            for get in (found.get_submodule, found.get_parameter, found.get_buffer):
                with suppress(AttributeError):
                    return get(path)
        return None

    def is_spread(self, name: str) -> bool:
        if name == "global_gradient_norm":
            return any(map(_is_spread, self.modules().values()))
        return _is_spread(self.find(name.removeprefix("gradients/")))

    def modules(self) -> dict[str, nn.Module]:
        """Return those that are modules, by name."""
        return {name: it for name, it in self._objects.items() if isinstance(it, nn.Module)}

    def warn_of_unsaved(self) -> None:
        """Log what a step is likely to change and no checkpoint will hold."""
        if not self._objects:
            _log.warning(
                "the graph has no objects, so that its checkpoints hold nothing of what its steps "
                "change: give them, such as model=model, optimizer=optimizer"
            )
        if not (optimizers := self.optimizers()):
            return
        held = {id(it) for module in self.modules().values() for it in module.parameters()}
        for name, optimizer in optimizers.items():
            updated = [it for group in optimizer.param_groups for it in group["params"]]
            if any(id(it) not in held for it in updated):
                _log.warning(
                    "%r updates parameters of a module that is no object of the graph, so that "
                    "checkpoints do not hold them: give the module too, such as model=model",
                    name,
                )

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Return those that are optimizers, by name."""
        kind = torch.optim.Optimizer
        return {name: it for name, it in self._objects.items() if isinstance(it, kind)}

    @property
    def names(self) -> list[str]:
        """As ``StatefulObjects.names``."""
        return list(self._saved)

    def save(
        self, into: Arrays | None = None, share: Share | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """As ``StatefulObjects.save``."""
        tensors: dict[str, torch.Tensor] = {}
        states: dict[str, Any] = {}
        for name, saved in self._saved.items():
            state = saved.state_dict()
            found, states[OBJECT_STATES + name] = split(name, state, in_parts=share is not None)
            tensors.update(found)
        if share is not None:
            sharded = sharded_tensors(tensors, self._held_by_all(tensors), share)
            return to_host(ARRAYS.to_host, tensors, sharded, into), states
        places = None if into is None else [into.get(name) for name in tensors]
        return dict(
            zip(tensors, ARRAYS.to_host(list(tensors.values()), places), strict=True)
        ), states

    def _held_by_all(self, names: Collection[str]) -> set[str]:
        """Which tensors are the same on all ranks, as the parameters of replicas are."""
        parameters = {
            f"{name}/{path}"
            for name, module in self.modules().items()
            for path, _ in module.named_parameters(remove_duplicate=False)
        }
        follow = self.optimizers()
        owners = {name: name.partition("/") for name in names}
        return parameters | {
            name
            for name, (owner, _, of) in owners.items()
            if owner in follow or (owner in self._averages and of in parameters)
        }

    def owns(self, name: str) -> bool:
        """As ``StatefulObjects.owns``."""
        return name.partition("/")[0] in (*self._saved, PENDING)

    def loader(
        self,
        arrays: Mapping[str, Any],
        states: Mapping[str, Any],
        only: Collection[str] | None,
        resized: Resized | None = None,
        *,
        is_given: bool = False,
    ) -> Callable[[], None]:
        """As ``StatefulObjects.loader``."""
        known = [key.removeprefix(OBJECT_STATES) for key in states if key.startswith(OBJECT_STATES)]
        known = [name for name in known if name != PENDING]
        problems = [f"no object for {k!r}" for k in known if only is None and k not in self._saved]
        new: dict[str, Any] = {}
        for name in self._in_order_of_loading():
            if only is not None and name not in only:
                continue
            if resized is not None and (seed := self._new_seed(name, resized)) is not None:
                new[name] = {SEED: seed}
                continue
            saved = states.get(OBJECT_STATES + name, {"state": {}} if name == PENDING else None)
            if saved is None:
                problems.append(f"missing the object {name!r}")
                continue
            if name == PENDING and resized and any(map(_is_pending, resized.differing)):
                problems.append(
                    f"{resized.saved} ranks have accumulated different gradients, which "
                    f"{resized.size} cannot go on with: save after a step that applies them"
                )
                continue
            names = list(names_in(saved))
            if missing := [it for it in names if it not in arrays]:
                problems.append(f"missing {missing[:5]}")
                continue
            likes = self._likes(name, names)
            new[name] = join(
                saved, {it: tensor_of(arrays[it], likes.get(it), copy=not is_given) for it in names}
            )
            problems += _misfits(name, self._saved[name], new[name])
        if problems:
            more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise ValueError(
                "the checkpoint does not fit the objects of the graph: "
                f"{'; '.join(problems[:5])}{more}"
            )
        return lambda: self._load(new)

    def read(self, name: str) -> dict[str, NDArray[Any]]:
        """As ``StatefulObjects.read``."""
        found = parts_of(self.modules(), self.optimizers(), name)
        return {key: part.read() for key, part in found.items()}

    def assigner(self, values: Mapping[str, Any]) -> Callable[[], None]:
        """As ``StatefulObjects.assigner``."""
        return assigner(self.modules(), self.optimizers(), values)

    def averages(self, name: str, parts: Collection[str]) -> Callable[[float], None]:
        """As ``StatefulObjects.averages``."""
        found: dict[str, torch.Tensor] = {}
        for part in parts:
            found.update(tensors_of(self.modules(), part))
        kept = self._averages.get(name)
        if kept is None or kept.names != list(found):
            if name in self._saved and kept is None:
                raise ValueError(f"the averages must have a name of their own, got {name!r}")
            kept = self._averages[name] = self._saved[name] = Averages(found)
        return kept.update

    @contextmanager
    def substituted(self, places: Mapping[str, str]) -> Iterator[None]:
        """As ``StatefulObjects.substituted``."""
        with ExitStack() as stack:
            for name in dict.fromkeys(owner.partition("/")[0] for owner in places.values()):
                if name not in self._averages:
                    raise ValueError(f"the graph has no averages named {name!r}")
                stack.enter_context(self._averages[name].in_place())
            yield

    def _load(self, new: Mapping[str, Any]) -> None:
        loaded: list[str] = []
        # What the program says, unless its steps or schedules may have changed that.
        said = {} if self.begun else {k: _settings(it) for k, it in self.optimizers().items()}
        for name, state in new.items():
            try:
                self._saved[name].load_state_dict(state)
            except Exception as error:
                add_note(error, f"while loading the object {name!r}; loaded before: {loaded}")
                raise
            loaded.append(name)
            if name in said and (found := _settings(self._objects[name])) != said[name]:
                _log.info(
                    "%r goes on with the settings of the checkpoint, %s, not with %s, those of the "
                    "program: to change them, assign to its param_groups in after_create_session",
                    *(name, found, said[name]),
                )
        self.settle()

    def _likes(self, name: str, names: Collection[str]) -> dict[str, torch.Tensor]:
        """The tensors that those of a state of the object ``name`` belong to, by their names."""
        target = self._saved[name]
        if isinstance(target, nn.Module | Averages):
            return {f"{name}/{key}": it for key, it in target.state_dict().items()}
        if isinstance(target, torch.optim.Optimizer):
            places = dict(places_of_states(name, target))
            found = {it: places.get(it.rpartition("/")[0]) for it in names}
        elif name == PENDING:
            found = {it: self.find(it.removeprefix(f"{PENDING}/")) for it in names}
        else:
            return {}
        return {it: like for it, like in found.items() if like is not None}

    def _new_seed(self, name: str, resized: Resized) -> int | None:
        """The seed for the random states of ``name`` on another number of ranks, if it has some."""
        saved = self._saved[name]
        if name == RANDOM_STATES or (isinstance(saved, StateAsDict) and saved.takes_seed):
            return resized.seed_of(name)
        return None

    def _in_order_of_loading(self) -> list[str]:
        # First the objects that cannot be checked beforehand: if one refuses its state, modules and
        # optimizers are still as they were. Random states last: loading may draw.
        def rank(name: str) -> int:
            checked = isinstance(self._saved[name], nn.Module | torch.optim.Optimizer)
            return 2 if name == RANDOM_STATES else 1 if checked else 0

        return sorted(self._saved, key=rank)


def _settings(optimizer: torch.optim.Optimizer) -> str:
    """Return the learning rates and weight decays that ``optimizer`` was given, as text."""
    groups = []
    for group in optimizer.param_groups:
        rate = group.get("initial_lr", group.get("lr"))  # the former is kept by schedulers
        decay = group.get("weight_decay")
        groups.append(f"lr={rate}" + (f" and weight_decay={decay}" if decay else ""))
    return ", ".join(dict.fromkeys(groups))


def _is_pending(name: str) -> bool:
    return name.startswith(f"{PENDING}/")


def _stateful(name: str, it: Any) -> Any:
    if _has(it, "get_state", "set_state") and not _has(it, "state_dict", "load_state_dict"):
        return StateAsDict(it)
    if isinstance(it, DataLoader) and not _has(it, "state_dict", "load_state_dict"):
        raise TypeError(
            f"{name} must have state_dict and load_state_dict, which a DataLoader has not: give it "
            "as data, whose position is kept, or make it a StatefulDataLoader of torchdata"
        )
    arguments.stateful(**{name: it})
    return it


def _is_generator(saved: Any) -> bool:
    return isinstance(saved, StateAsDict) and saved.is_generator


def _has(it: Any, *methods: str) -> bool:
    return all(callable(getattr(it, method, None)) for method in methods)


def _misfits(name: str, target: Any, state: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(target, nn.Module):
        own = target.state_dict()
        if missing := [f"{name}/{key}" for key in own if key not in state]:
            yield f"missing {missing[:5]}"
        if unknown := [f"{name}/{key}" for key in state if key not in own]:
            yield f"no parameter or buffer for {unknown[:5]}"
        for key, mine in own.items():
            saved = state.get(key)
            if isinstance(mine, torch.Tensor) and isinstance(saved, torch.Tensor):
                is_lazy = torch.nn.parameter.is_lazy(mine)
                if not is_lazy and (mine.shape, mine.dtype) != (saved.shape, saved.dtype):
                    yield f"{f'{name}/{key}'!r} must be {form(mine)}, got {form(saved)}"
    elif isinstance(target, torch.optim.Optimizer):
        mine, saved = set(target.param_groups[0]), set(state["param_groups"][0])
        # Another version of torch may have one more option; another kind has others.
        if mine - saved and saved - mine:
            yield (
                f"{name!r} is another kind of optimizer: its groups have {sorted(mine - saved)}, "
                f"those that were saved {sorted(saved - mine)}"
            )
        own_sizes = [len(group["params"]) for group in target.param_groups]
        sizes = [len(group["params"]) for group in state["param_groups"]]
        if own_sizes != sizes:
            yield f"{name!r} must have groups of {own_sizes} parameters, got {sizes}"


def _is_spread(found: Any) -> bool:
    tensors = found.parameters() if isinstance(found, nn.Module) else [found]
    return any(is_distributed(it) for it in tensors)
