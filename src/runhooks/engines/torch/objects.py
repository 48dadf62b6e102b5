"""``TorchObjects``: modules, optimizers and other objects that steps change."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from runhooks import arguments
from runhooks.arrays.shards import Share, loaded_from, to_host
from runhooks.arrays.torch import ARRAYS, cloned, form, is_distributed
from runhooks.checkpoint.names import saved_averages
from runhooks.engines.conform import fitted
from runhooks.engines.torch.engine import Averages
from runhooks.engines.torch.pending import PendingGradients, is_unexchanged, updated_by
from runhooks.engines.torch.states import (
    SEED,
    RandomStates,
    StateAsDict,
    is_carried,
    join,
    names_in,
    sharded_tensors,
    split,
    takes_seed,
    tensor_of,
    unwrapped,
)
from runhooks.errors import add_note
from runhooks.graph import nest
from runhooks.graph.base import OBJECT_STATES, PENDING, RANDOM_STATES, Arrays, Resized
from runhooks.graph.generators import generators_left_alone
from runhooks.near_names import suggestion

_log = logging.getLogger("runhooks")

RATE = "learning_rate"
GLOBAL_NORM = "global_gradient_norm"
_PARAMETERS = "parameters"  # of each group, by name, beside an optimizer's state

Part = torch.Tensor | dict[str, Any]  # or the group of an optimizer, whose rate is a number


def rate_groups(optimizers: Mapping[str, Optimizer], name: str) -> dict[str, dict[str, Any]]:
    """Return all groups for ``"adam/learning_rate"``, the first for ``"adam/learning_rate/0"``.

    ``"adam/"`` may be left out if there is no other optimizer.
    """
    if name.partition("/")[0] == RATE and len(optimizers) == 1:
        name = f"{next(iter(optimizers))}/{name}"
    rates = {
        f"{owner}/{RATE}/{number}": group
        for owner, optimizer in optimizers.items()
        for number, group in enumerate(optimizer.param_groups)
    }
    return {key: group for key, group in rates.items() if name in (key, key.rpartition("/")[0])}


def rate_in(group: Mapping[str, Any]) -> Any:
    return cloned(group["lr"])


def one_rate(rates: Sequence[Any]) -> Any:
    """Return a single rate, or all if they may differ."""
    # Comparing tensors would wait for their device.
    may_differ = len(rates) > 1 and any(isinstance(rate, torch.Tensor) for rate in rates)
    return rates if may_differ or any(rate != rates[0] for rate in rates[1:]) else rates[0]


def tensors_in(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers, a shared one under each of its paths."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return {**parameters, **dict(module.named_buffers(remove_duplicate=False))}


def _read(part: Part) -> NDArray[Any]:
    if isinstance(part, torch.Tensor):
        return ARRAYS.to_numpy(part.detach().clone())
    return np.asarray(part["lr"])


def _assigner(name: str, part: Part, value: Any) -> Callable[[], None]:
    if not isinstance(part, torch.Tensor):
        rate = float(fitted(name, value, ((), np.dtype(float))))
        return partial(part.update, lr=rate)
    array = fitted(name, value, ARRAYS.host_form(part))
    placed: torch.Tensor = ARRAYS.place(array, part)

    def assign() -> None:
        with torch.no_grad():
            part.copy_(placed)

    return assign


_RESERVED = {"activations", GLOBAL_NORM, "global_step", "gradients", RATE, RANDOM_STATES}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def warn_of_optimizer(step: str, what: str, name: str) -> None:
    _log.warning(
        "the step %r uses the optimizer %r, which is no object of the graph, so no checkpoint "
        "holds its state: give it too, such as %s=%s",
        *(step, what, name.rpartition(".")[2], name),
    )


class TorchObjects:
    """Objects by name, and the states of random generators: ``StatefulObjects``."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        for name in objects:
            if not _NAME.fullmatch(name) or name in _RESERVED:
                raise ValueError(
                    f"an object must be named with letters, digits and '_', and not "
                    f"{', '.join(sorted(_RESERVED))}, got {name!r}"
                )
        self.given = dict(objects)
        self._objects = {name: unwrapped(it) for name, it in objects.items()}
        given = {name: _stateful(name, it) for name, it in self._objects.items()}
        kinds = torch.Generator | np.random.RandomState
        self._generators = [it for it in self._objects.values() if isinstance(it, kinds)]
        known = [*self.optimizers().values(), *self._held_optimizers()]
        self.pending_gradients = PendingGradients(self.modules(), known)
        self._saved = {**given, RANDOM_STATES: RandomStates(), PENDING: self.pending_gradients}
        self._averages: dict[str, Averages] = {}
        self.steps: dict[str, Callable[..., Any]] = {}
        self.begun = 0  # steps
        self._settled = 0
        # Held while a function that preserves these is called: no other evaluation begins or ends.
        self.calling = threading.RLock()
        self._is_preserving = False
        self.has_logged_eager = False  # in this session, as the next
        self._has_logged_unexchanged = False
        self._to_check = self.modules()  # which no step has left in evaluation mode

    def __repr__(self) -> str:
        return ", ".join(self._objects) or "no objects"

    @property
    def changed(self) -> bool:
        return self.begun != self._settled

    def settle(self) -> None:
        self._settled = self.begun
        self.has_logged_eager = False
        self._has_logged_unexchanged = False

    @contextmanager
    def preserved(self) -> Iterator[None]:
        restored = ExitStack()
        modules = self.modules().values()
        with self.calling:
            modes = [(it, it.training) for module in modules for it in module.modules()]
            is_outermost, self._is_preserving = not self._is_preserving, True
            if is_outermost:
                restored.enter_context(generators_left_alone(self._generators))
        try:
            yield
        finally:
            with self.calling, restored:
                self._is_preserving = not is_outermost
                for module, training in modes:
                    if module.training is not training:
                        module.training = training

    def find(self, name: str) -> Any:
        """Return an object, or a part ``"<object>/<path>"`` of a module, or None."""
        owner, slash, path = name.partition("/")
        found = self._objects.get(owner)
        if not slash:
            return found
        if isinstance(found, nn.Module) and path:
            for get in (found.get_submodule, found.get_parameter, found.get_buffer):
                with suppress(AttributeError):
                    return get(path)
        return None

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """Return a parameter or buffer, or those in a module."""
        found = self.find(name)
        if isinstance(found, torch.Tensor):
            return {name: found}
        if not isinstance(found, nn.Module):
            return {}
        below = f"{name}." if "/" in name else f"{name}/"
        return {below + path: tensor for path, tensor in tensors_in(found).items()}

    def parts(self, name: str) -> dict[str, Part]:
        """Return tensors and learning rates, by name; ValueError if there are none."""
        optimizers = self.optimizers()
        whole = f"{name}/{RATE}" if name in optimizers else name
        found: dict[str, Part] = {**self.tensors(name)}
        for key, group in rate_groups(optimizers, whole).items():
            found[key] = group["lr"] if isinstance(group["lr"], torch.Tensor) else group
        if not found:
            raise self._unknown(name)
        return found

    def _unknown(self, name: str) -> ValueError:
        known = [part for module in self.modules() for part in self.tensors(module)]
        rates = [f"{it}/{RATE}" for it in self.optimizers()]
        near = suggestion(name, [*known, *rates])
        return ValueError(f"no part of an object is named {name!r}{near}")

    def is_spread(self, name: str) -> bool:
        if name == GLOBAL_NORM:
            return any(map(_is_spread, self.modules().values()))
        return _is_spread(self.find(name.removeprefix("gradients/")))

    def modules(self) -> dict[str, nn.Module]:
        return {name: it for name, it in self._objects.items() if isinstance(it, nn.Module)}

    def warn_of_unsaved(self) -> None:
        if not self._objects:
            _log.warning(
                "the graph has no objects, so its checkpoints hold nothing that steps change: give "
                "them, such as model=model, optimizer=optimizer"
            )
        for name, optimizer in self.optimizers().items():
            if any(None in group for group in self._parameters_of(optimizer)):
                _log.warning(
                    "%r updates parameters of a module that is no object of the graph, so no "
                    "checkpoint holds them: give the module too, such as model=model",
                    name,
                )

    def check_optimizers(self, step: str, optimizers: Iterable[Optimizer]) -> None:
        """Log, once for each, which optimizers that ``step`` has called are not given."""
        for it in optimizers:
            if self.pending_gradients.know(it) and it not in self._held_optimizers():
                warn_of_optimizer(step, type(it).__name__, "optimizer")

    def _held_optimizers(self) -> list[Optimizer]:
        """Return those that are attributes of objects, which may save their states."""
        kinds = nn.Module | torch.optim.lr_scheduler.LRScheduler  # which do not
        holders = [it for it in self._objects.values() if not isinstance(it, kinds)]
        held = [value for it in holders for value in getattr(it, "__dict__", {}).values()]
        return [it for it in nest.leaves(held) if isinstance(it, Optimizer)]

    def check_modes(self) -> None:
        """Log, once for each, modules that are trained in evaluation mode."""
        for name in [name for name, it in self._to_check.items() if not it.training]:
            module = self._to_check.pop(name)
            updated = set(map(id, updated_by(self.optimizers().values())))
            if not updated.isdisjoint(map(id, module.parameters())):
                _log.warning(
                    "%r is in evaluation mode after a step: unless the step sets the mode, it is "
                    "trained without dropout and batch statistics; call train() on it before the "
                    "training, and after each eval() between steps",
                    name,
                )

    def optimizers(self) -> dict[str, Optimizer]:
        return {name: it for name, it in self._objects.items() if isinstance(it, Optimizer)}

    @property
    def names(self) -> list[str]:
        return list(self._saved)

    def save(
        self, into: Arrays | None = None, share: Share | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self._check_exchanged()
        tensors: dict[str, torch.Tensor] = {}
        states: dict[str, Any] = {}
        for name, saved in self._saved.items():
            state = saved.state_dict()
            found, kept = split(name, state, in_parts=share is not None)
            if isinstance(saved, Optimizer):
                kept[_PARAMETERS] = self._parameters_of(saved)
            states[OBJECT_STATES + name] = kept
            tensors.update(found)
        sharded = {}
        if share is not None:
            sharded = sharded_tensors(tensors, self._held_by_all(tensors), share)
        return to_host(ARRAYS.to_host, tensors, sharded, into), states

    def _check_exchanged(self) -> None:
        """Log, once in a session, gradients that no checkpoint can hold."""
        for name, module in self.modules().items():
            if self._has_logged_unexchanged or not any(map(is_unexchanged, module.modules())):
                continue
            self._has_logged_unexchanged = True
            _log.warning(
                "a checkpoint is saved without the gradients of %r that FSDP has not exchanged "
                "yet, after set_requires_gradient_sync(False): accumulate within one step, or "
                "exchange in every micro-batch",
                name,
            )

    def _held_by_all(self, names: Collection[str]) -> set[str]:
        parameters = {
            f"{name}/{path}"
            for name, module in self.modules().items()
            for path, _ in module.named_parameters(remove_duplicate=False)
        }
        follow = self.optimizers()
        owners = ((name, *name.partition("/")) for name in names)
        return parameters | {
            name
            for name, owner, _, of in owners
            if owner in follow or (owner in self._averages and of in parameters)
        }

    def owns(self, name: str) -> bool:
        return name.partition("/")[0] in self._saved

    def loader(
        self,
        arrays: Mapping[str, Any],
        states: Mapping[str, Any],
        only: Collection[str] | None,
        resized: Resized | None = None,
        *,
        is_given: bool = False,
    ) -> Callable[[], None]:
        stripped = ((key, key.removeprefix(OBJECT_STATES)) for key in states)
        known = [name for key, name in stripped if name not in (key, PENDING)]
        averages = saved_averages(states)
        ours = {*self._saved, *(it.partition("/")[0] for it in averages)}
        problems = [f"no object for {k!r}" for k in known if only is None and k not in ours]
        new: dict[str, Any] = {}
        for name in sorted(self._saved, key=self._turn_of_loading):
            if only is not None and name not in only:
                continue
            if name in self._averages and not self._were_averages(name, averages):
                continue  # they start over
            if resized is not None and takes_seed(self._saved[name]):
                new[name] = {SEED: resized.seed_of(name)}
                continue
            saved = states.get(OBJECT_STATES + name, {"state": {}} if name == PENDING else None)
            if saved is None:
                problems.append(f"missing the object {name!r}")
                continue
            if (
                name == PENDING
                and resized
                and any(it.startswith(f"{PENDING}/") for it in resized.differing)
            ):
                problems.append(
                    f"{resized.saved} ranks have accumulated different gradients, which "
                    f"{resized.size} cannot use: save after a step that applies them"
                )
                continue
            names = list(dict.fromkeys(names_in(saved)))
            if missing := [it for it in names if it not in arrays]:
                problems.append(f"missing {missing[:5]}")
                continue
            new[name] = join(saved, self._tensors_of(name, names, arrays, copy=not is_given))
            problems += _misfits(name, self._saved[name], new[name])
            problems += self._misplaced(name, saved.get(_PARAMETERS, ()), new[name])
        if problems:
            more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise ValueError(
                "the checkpoint does not fit the objects of the graph: "
                f"{'; '.join(problems[:5])}{more}"
            )
        return lambda: self._load(new)

    def read(self, name: str) -> dict[str, NDArray[Any]]:
        return {key: _read(part) for key, part in self.parts(name).items()}

    def assigner(self, values: Mapping[str, Any]) -> Callable[[], None]:
        assigners = []
        for name, value in values.items():
            parts = self.parts(name)
            if len(parts) > 1:
                raise ValueError(f"{name!r} has several parts, {[*parts]}: name one")
            assigners += [_assigner(name, part, value) for part in parts.values()]

        def assign() -> None:
            for each in assigners:
                each()

        return assign

    def averages(self, name: str, parts: Collection[str]) -> Callable[[float], None]:
        found: dict[str, torch.Tensor] = {}
        for part in parts:
            if not (tensors := self.tensors(part)):
                raise self._unknown(part)
            found.update(tensors)
        kept = self._averages.get(name)
        if kept is None or kept.names != list(found):
            if name in self._saved and kept is None:
                raise ValueError(f"the averages must have a name of their own, got {name!r}")
            kept = self._averages[name] = self._saved[name] = Averages(found, parts)
        return kept.update

    @contextmanager
    def substituted(self, places: Mapping[str, str]) -> Iterator[None]:
        with ExitStack() as stack:
            for name in dict.fromkeys(owner.partition("/")[0] for owner in places.values()):
                if name not in self._averages:
                    raise ValueError(f"the graph has no averages named {name!r}")
                stack.enter_context(self._averages[name].in_place())
            yield

    def _load(self, new: Mapping[str, Any]) -> None:
        loaded: list[str] = []
        # What the program says, unless its steps may have changed that.
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
                    "%r goes on with the settings of the checkpoint, %s, not with %s of the "
                    "program: to change them, assign to its param_groups in after_create_session",
                    *(name, found, said[name]),
                )
        self.settle()

    def _tensors_of(
        self, name: str, names: Sequence[str], arrays: Mapping[str, Any], *, copy: bool
    ) -> dict[str, torch.Tensor]:
        likes = self._likes(name, names)

        def load(it: str) -> torch.Tensor:
            return tensor_of(arrays[it], likes.get(it), copy=copy)

        return dict(zip(names, loaded_from(arrays, load, names), strict=True))

    def _likes(self, name: str, names: Collection[str]) -> dict[str, torch.Tensor]:
        target = self._saved[name]
        if isinstance(target, nn.Module | Averages):
            return {f"{name}/{key}": it for key, it in target.state_dict().items()}
        if isinstance(target, Optimizer):
            parameters = updated_by([target])
            places = {f"{name}/state/{number}": it for number, it in enumerate(parameters)}
            found = {it: places.get(it.rpartition("/")[0]) for it in names}
        elif name == PENDING:
            found = {it: self.find(it.removeprefix(f"{PENDING}/")) for it in names}
        else:
            return {}
        return {it: like for it, like in found.items() if like is not None}

    def _parameters_of(self, optimizer: Optimizer) -> list[list[str | None]]:
        """Return names by group; None for a parameter of no module."""
        names = {
            id(it): f"{name}/{path}"
            for name, module in self.modules().items()
            for path, it in module.named_parameters()
        }
        return [[names.get(id(it)) for it in group["params"]] for group in optimizer.param_groups]

    def _misplaced(
        self, name: str, saved: Sequence[Sequence[str | None]], state: Mapping[str, Any]
    ) -> Iterator[str]:
        """Tell of a parameter in another place, by which torch finds its state."""
        if not saved or not (state["state"] or len(saved) > 1):
            return
        groups = [group["params"] for group in self._saved[name].param_groups]
        places = {id(it): (n, i) for n, group in enumerate(groups) for i, it in enumerate(group)}
        for number, group in enumerate(saved):
            for index, parameter in enumerate(group):
                place = None if parameter is None else places.get(id(self.find(parameter)))
                if place not in (None, (number, index)):
                    yield (
                        f"{name!r} has parameters in another order: {parameter!r} was saved as "
                        f"number {index} of group {number}, and is number {place[1]} of group "
                        f"{place[0]}"
                    )
                    return

    def _were_averages(self, name: str, saved: Collection[str]) -> bool:
        before = {it for it in saved if it.partition("/")[0] == name}
        return before == {f"{name}/{part}" for part in self._averages[name].parts}

    def _turn_of_loading(self, name: str) -> int:
        # First what is not checked, and may refuse its state before others have changed. Random
        # states last: loading may draw.
        is_checked = isinstance(self._saved[name], nn.Module | Optimizer)
        return 2 if name == RANDOM_STATES else int(is_checked)


def _settings(optimizer: Optimizer) -> str:
    groups = []
    for group in optimizer.param_groups:
        rate = group.get("initial_lr", group.get("lr"))  # schedulers keep the former
        decay = group.get("weight_decay")
        groups.append(f"lr={rate}" + (f" and weight_decay={decay}" if decay else ""))
    return ", ".join(dict.fromkeys(groups))


def _stateful(name: str, it: Any) -> Any:
    if not _has(it, "state_dict", "load_state_dict"):
        if _has(it, "get_state", "set_state"):
            return StateAsDict(it)
        if isinstance(it, DataLoader):
            raise TypeError(
                f"{name} must have state_dict and load_state_dict, and is a DataLoader: give it as "
                "data, or make it a StatefulDataLoader of torchdata"
            )
    if is_carried(it):
        raise TypeError(
            f"{name} is a value, which steps return anew: give it to rh.torch.graph, for a "
            "parameter of this name, or make it a variable, rh.Variable(...)"
        )
    arguments.stateful(**{name: it})
    return it


def _has(it: Any, *methods: str) -> bool:
    return all(callable(getattr(it, method, None)) for method in methods)


def _misfits(name: str, target: Any, state: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(target, nn.Module | Averages):
        own = target.state_dict()
        if missing := [f"{name}/{key}" for key in own if key not in state]:
            yield f"missing {missing[:5]}"
        if unknown := [f"{name}/{key}" for key in state if key not in own]:
            yield f"no parameter or buffer for {unknown[:5]}"
        may_resize = _resized_in_loading(target) if isinstance(target, nn.Module) else ()
        for key, mine in own.items():
            saved = state.get(key)
            if isinstance(mine, torch.Tensor) and isinstance(saved, torch.Tensor):
                is_lazy = torch.nn.parameter.is_lazy(mine)
                shape = saved.shape if key in may_resize else mine.shape
                if not is_lazy and (shape, mine.dtype) != (saved.shape, saved.dtype):
                    yield f"{f'{name}/{key}'!r} must be {form(mine)}, got {form(saved)}"
    elif isinstance(target, Optimizer):
        mine, saved = set(target.param_groups[0]), set(state["param_groups"][0])
        # Another version of torch may have more options; another kind has others.
        if mine - saved and saved - mine:
            yield (
                f"{name!r} is another kind of optimizer: its groups have {sorted(mine - saved)}, "
                f"the saved ones {sorted(saved - mine)}"
            )
        own_sizes = [len(group["params"]) for group in target.param_groups]
        sizes = [len(group["params"]) for group in state["param_groups"]]
        if own_sizes != sizes:
            yield f"{name!r} must have groups of {own_sizes} parameters, got {sizes}"


def _resized_in_loading(module: nn.Module) -> set[str]:
    """Return the buffers of modules with a loader of their own, which may resize them."""
    return {
        f"{path}.{name}" if path else name
        for path, part in module.named_modules(remove_duplicate=False)
        # Those of torch.nn are about versions alone.
        if not type(part)._load_from_state_dict.__module__.startswith("torch.nn.")
        for name, _ in part.named_buffers(recurse=False)
    }


def _is_spread(found: Any) -> bool:
    tensors = found.parameters() if isinstance(found, nn.Module) else [found]
    return any(is_distributed(it) for it in tensors)
