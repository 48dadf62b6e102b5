"""``TorchParts``: modules, optimizers and other objects that the steps of a graph change."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from runhooks import arguments
from runhooks.engines.torch_arrays import form, from_numpy, to_host
from runhooks.engines.torch_pending import PendingGradients
from runhooks.engines.torch_random import ByState, RandomStates
from runhooks.engines.torch_states import names_in, put_together, taken_apart
from runhooks.graph.parts import PART_STATES, Arrays

#: Names that mean something else where values are fetched or saved by name.
_RESERVED = {"activations", "global_gradient_norm", "global_step", "gradients", "learning_rate"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_RANDOM, _PENDING = "random", "gradients"


class TorchParts:
    """Parts by name, and the states of random generators as the part ``"random"``.

    Raises TypeError for a part without ``state_dict`` and ``load_state_dict``, or ``get_state`` and
    ``set_state``; ValueError for a name that parts cannot have.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        for name in parts:
            if not _NAME.fullmatch(name) or name in _RESERVED or name == _RANDOM:
                raise ValueError(
                    f"a part must be named with letters, digits and '_', and not "
                    f"{', '.join(sorted({*_RESERVED, _RANDOM}))}, got {name!r}"
                )
        # What torch.compile makes of a module has another name for each of its parameters.
        self._parts = {name: getattr(part, "_orig_mod", part) for name, part in parts.items()}
        keepers = {name: _keeper(name, part) for name, part in self._parts.items()}
        self._random = RandomStates()
        self._saved = {**keepers, _RANDOM: self._random}
        self._pending = PendingGradients(self.modules())
        #: The steps, by name, as they were given.
        self.steps: dict[str, Callable[..., Any]] = {}
        #: How many steps were begun.
        self.begun = 0
        self._settled = 0
        #: Whether this session was told that what is compiled runs eagerly in some runs.
        self.told_eager = False

    def __repr__(self) -> str:
        return ", ".join(self._parts) or "no parts"

    @property
    def changed(self) -> bool:
        """As ``Parts.changed``."""
        return self.begun != self._settled

    def settle(self) -> None:
        """As ``Parts.settle``."""
        self._settled = self.begun
        self.told_eager = False

    def begin(self, *, counts: bool) -> None:
        """Note that a step begins; ``counts``: one that is a global step."""
        self.begun += 1
        self._pending.pending = not counts

    def keep_pending_gradients(self) -> None:
        """From now on save the gradients that steps which do not count have left."""
        self._saved[_PENDING] = self._pending

    @contextmanager
    def kept_apart(self) -> Iterator[None]:
        """As ``Parts.kept_apart``."""
        modes = [(it, it.training) for module in self.modules().values() for it in module.modules()]
        states = self._random.state_dict()
        try:
            yield
        finally:
            self._random.load_state_dict(states)
            for module, training in modes:
                module.training = training

    def find(self, name: str) -> Any:
        """The module, parameter or buffer ``"<part>/<path>"``, or the part; None if none is."""
        part, slash, path = name.partition("/")
        found = self._parts.get(part)
        if not slash:
            return found
        if isinstance(found, nn.Module) and path:
            for get in (found.get_submodule, found.get_parameter, found.get_buffer):
                with suppress(AttributeError):
                    return get(path)
        return None

    def modules(self) -> dict[str, nn.Module]:
        """Those that are modules, by name."""
        return {k: part for k, part in self._parts.items() if isinstance(part, nn.Module)}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Those that are optimizers, by name."""
        kind = torch.optim.Optimizer
        return {name: part for name, part in self._parts.items() if isinstance(part, kind)}

    def save(self, into: Arrays | None = None) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """As ``Parts.save``."""
        tensors: dict[str, torch.Tensor] = {}
        states: dict[str, Any] = {}
        for name, part in self._saved.items():
            found, states[PART_STATES + name] = taken_apart(name, part.state_dict())
            tensors.update(found)
        places = None if into is None else [into.get(name) for name in tensors]
        return dict(zip(tensors, to_host(list(tensors.values()), places), strict=True)), states

    def owns(self, name: str) -> bool:
        """As ``Parts.owns``."""
        return name.partition("/")[0] in (*self._saved, _PENDING)

    def loader(
        self, arrays: Arrays, states: Mapping[str, Any], only: Collection[str] | None
    ) -> Callable[[], None]:
        """As ``Parts.loader``."""
        known = [key.removeprefix(PART_STATES) for key in states if key.startswith(PART_STATES)]
        known = [name for name in known if name != _PENDING]
        problems = [f"no part for {k!r}" for k in known if only is None and k not in self._saved]
        new: dict[str, Any] = {}
        for name in self._in_order_of_loading():
            if only is not None and name not in only:
                continue
            saved = states.get(PART_STATES + name, {"state": {}} if name == _PENDING else None)
            if saved is None:
                problems.append(f"missing the part {name!r}")
                continue
            names = list(names_in(saved))
            if missing := [it for it in names if it not in arrays]:
                problems.append(f"missing {missing[:5]}")
                continue
            new[name] = put_together(saved, {it: from_numpy(arrays[it]) for it in names})
            problems += _misfits(name, self._saved[name], new[name])
        if problems:
            more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise ValueError(f"the parts are of another model: {'; '.join(problems[:5])}{more}")
        return lambda: self._load(new)

    def _load(self, new: Mapping[str, Any]) -> None:
        loaded: list[str] = []
        for name, state in new.items():
            try:
                self._saved[name].load_state_dict(state)
            except Exception as error:
                error.add_note(f"while loading the part {name!r}; loaded before: {loaded}")
                raise
            loaded.append(name)
        self.settle()

    def _in_order_of_loading(self) -> list[str]:
        # Those first that cannot be asked whether a state fits them: if it does not, those that
        # training is about are still as they were. Others may draw while they are loaded.
        def rank(name: str) -> int:
            part = self._saved[name]
            checked = isinstance(part, nn.Module | torch.optim.Optimizer)
            return 2 if name == _RANDOM else 1 if checked else 0

        return sorted(self._saved, key=rank)


def state_dicts(arrays: Arrays, states: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The state dicts of the user's parts in what ``TorchParts.save`` returned, by name."""
    return {
        key.removeprefix(PART_STATES): put_together(
            saved, {name: from_numpy(arrays[name]) for name in names_in(saved)}
        )
        for key, saved in states.items()
        if key.startswith(PART_STATES) and key.removeprefix(PART_STATES) not in (_RANDOM, _PENDING)
    }


def _keeper(name: str, part: Any) -> Any:
    if _has(part, "get_state", "set_state") and not _has(part, "state_dict", "load_state_dict"):
        return ByState(part)
    arguments.stateful(**{name: part})
    return part


def _has(part: Any, *methods: str) -> bool:
    return all(callable(getattr(part, method, None)) for method in methods)


def _misfits(name: str, part: Any, state: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(part, nn.Module):
        own = part.state_dict()
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
    elif isinstance(part, torch.optim.Optimizer):
        mine, saved = set(part.param_groups[0]), set(state["param_groups"][0])
        # Another version of torch may know an option more; another kind knows others.
        if mine - saved and saved - mine:
            yield (
                f"{name!r} is another kind of optimizer: its groups have {sorted(mine - saved)}, "
                f"those that were saved {sorted(saved - mine)}"
            )
        own_sizes = [len(group["params"]) for group in part.param_groups]
        sizes = [len(group["params"]) for group in state["param_groups"]]
        if own_sizes != sizes:
            yield f"{name!r} must have groups of {own_sizes} parameters, got {sizes}"
