"""The states of a user's step, and what else is made for its parameters, as tensors."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, cast

from runhooks.graph.build import inputs
from runhooks.graph.generator_state import GeneratorState, is_generator
from runhooks.graph.global_step import get_or_create_global_step
from runhooks.graph.graph import Graph
from runhooks.graph.initial import InitialMade
from runhooks.graph.random_key import random_key
from runhooks.graph.step_parameters import KEYS, STEPS
from runhooks.graph.tensor import Tensor, Variable
from runhooks.near_names import with_article


def state_tensor(graph: Graph, name: str, value: Any) -> Tensor:
    """Return a variable of ``graph``, the default graph, that begins with ``value``.

    If ``value`` is a function that returns a tensor, return that; if it is a random generator, an
    input that gives it in each run, and has its state in checkpoints.

    Raises:
        TypeError: If it is a function that takes arguments, or holds what no variable can hold.
    """
    engine = graph.engine
    if is_generator(value):
        if engine.finds_forms:
            raise TypeError(
                f"{name} is {with_article(type(value).__name__)}, which {engine.title} cannot "
                "compile: a parameter called key or rng gets a fresh key in each run, and one of "
                f"another name with {name}=lambda: rh.random_key(seed=0)"
            )
        return cast(Tensor, inputs(GeneratorState(value), name=name))
    if not (callable(value) and engine.is_leaf(value)):
        return Variable(value, name=name)
    try:
        inspect.signature(value).bind()
    except TypeError:
        raise TypeError(
            f"{name} must be a pytree of arrays, or a function without arguments that returns one, "
            f"got {value!r}"
        ) from None
    made = InitialMade(value)
    found = made.look()
    if isinstance(found, Tensor):
        return found
    # Where the form alone tells what is in it, the graph keeps no arrays.
    return Variable(made if engine.finds_forms else found, name=name)


def is_state(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is a variable that the step is to return anew."""
    return isinstance(tensor, Variable) and not tensor.on_host


def made_for(parameters: Iterable[str]) -> dict[str, Tensor]:
    """Return the global step and random keys for those that ask for these by their names."""
    made: dict[str, Tensor] = {}
    for parameter in parameters:
        if parameter in STEPS:
            made[parameter] = get_or_create_global_step()
        elif parameter in KEYS:
            made[parameter] = random_key(name=parameter)
    return made
