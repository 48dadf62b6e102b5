"""``EmaHook``: exponential moving averages of parameters, to evaluate with and to save."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from runhooks import arguments
from runhooks.checkpoint.names import MOVING_AVERAGES
from runhooks.contract import RawSession, SessionRunContext, SessionRunValues, StopSignal
from runhooks.engines.foreign import session_of
from runhooks.graph import Operation, Variable, get_default_graph, group, placeholder
from runhooks.graph.build import update
from runhooks.graph.graph import Graph, own_graph
from runhooks.graph.nodes import InitialFrom, Tensor
from runhooks.hooks.base import TimedHook, step_of
from runhooks.near_names import suggestion
from runhooks.trigger import Due, timer_of

_log = logging.getLogger("runhooks")


class MovingAverages:
    """Moving averages, named by ``places``, of parts of the default graph."""

    def __init__(self, graph: Graph, name: str, places: Mapping[str, str]) -> None:
        self._graph = graph
        self.name = name
        self.places = places
        self._weight: Tensor = placeholder(f"{name}/weight")
        objects = graph.objects
        of_objects = [part for part in places if objects is not None and objects.owns(part)]
        self._move_objects: Callable[[float], None] | None = None
        if objects is not None and of_objects:
            self._move_objects = objects.averages(name, of_objects)
        moves = [self._move_of(part) for part in places if part not in of_objects]
        self._move = group(*moves, name=f"{name}/move") if moves else None

    def update(self, session: RawSession, weight: float) -> None:
        """Move the averages towards the present values, all the way with a ``weight`` of 1."""
        if self._move_objects is not None:
            self._move_objects(weight)
        if self._move is not None:
            session.run(self._move, {self._weight: weight})

    def _move_of(self, part: str) -> Operation:
        variable = _variable_of(self._graph, part)
        engine = self._graph.engine

        def leaves(value: Any) -> dict[str, Any]:
            return _leaves(engine.leaves(value), part, len(variable.op.name) + 1)

        def wide(value: Any) -> dict[str, Any]:
            return {key: engine.wide(it) for key, it in leaves(value).items()}

        def moved(averages: dict[str, Any], value: Any, weight: Any) -> dict[str, Any]:
            new = leaves(value)
            return {key: engine.average(old, new[key], weight) for key, old in averages.items()}

        average = Variable(InitialFrom(variable, wide), name=self.places[part], trainable=False)
        return update(average, moved, variable, self._weight, name=f"{self.places[part]}/move").op


def _averages_of(name: str, places: Mapping[str, str]) -> MovingAverages:
    graph = own_graph()
    for found in graph.get_collection(MOVING_AVERAGES):
        if found.name == name:
            if list(found.places) != list(places):
                raise ValueError(
                    f"name must be another one, got {name!r}: the graph has averages of that name, "
                    f"of {list(found.places)}"
                )
            return found  # type: ignore[no-any-return]
    made = MovingAverages(graph, name, places)
    graph.add_to_collection(MOVING_AVERAGES, made)
    return made


def _variable_of(graph: Graph, part: str) -> Variable:
    variables = {
        op.name: output
        for op in graph.get_operations()
        for output in op.outputs
        if isinstance(output, Variable) and not output.on_host
    }
    owner = part
    while owner:
        if owner in variables:
            return variables[owner]
        owner = owner.rpartition("/")[0]
    near = suggestion(part.partition("/")[0], variables)
    raise ValueError(f"no variable or object of the graph is named {part!r}{near}")


def _leaves(leaves: dict[str, Any], part: str, start: int) -> dict[str, Any]:
    """Return the leaves of ``part``, whose path inside of its variable begins at ``start``."""
    owner, path = part[:start], part[start:]
    if not path:
        return leaves
    if path in leaves:
        return {"": leaves[path]}
    found = {key[len(path) + 1 :]: it for key, it in leaves.items() if key.startswith(f"{path}/")}
    if not found:
        known = [owner + key for key in leaves]
        raise ValueError(f"nothing of the graph is named {part!r}{suggestion(part, known)}")
    return found


class EmaHook(TimedHook):
    """Keeps exponential moving averages of parameters: ``decay * average + (1 - decay) * new``.

    The averages stay on the device of the parameters, in float32 if these have fewer bits. To the
    bit, update ``k`` (from 1) gives the parameters the weight ``w = (1 - decay) / (1 - decay**k)``
    or, without ``debias``, ``1 - decay``, and 1 in the first update. It computes, in the dtype of
    the averages, ``average + w * (new - average)`` if ``w < 0.5``, or else
    ``new - (1 - w) * (new - average)``. For a module, that is ``torch.lerp(average, new, w)``. On
    JAX, it is compiled, with ``w`` as an argument. Integers and random keys are copied.

        ema = rh.EmaHook("state/params", decay=0.999)
        evaluation = rh.EvaluationHook({"accuracy": accuracy}, every_n_steps=500, averages=ema)

    Args:
        parameters: Their name in checkpoints, or a list of names: of a variable, an ``rh.torch``
            module, or a part of one.
        decay: The share of the old average that an update keeps; at least 0 and below 1.
        every_n_steps: Update at the multiples of this number.
        debias: Whether to correct early averages, as ``optax.ema`` does. False: start from the
            first parameters, like PyTorch's ``AveragedModel``.
        name: The prefix of the names of the averages; a second hook needs another one.
        hook_name: As in ``SessionRunHook``.

    Raises:
        ValueError: For a number out of its range. In ``begin``, or when a session opens: if nothing
            is called ``parameters``.
        TypeError: In ``begin``, on a ``tf.Graph``.
    """

    def __init__(
        self,
        parameters: str | Variable | Iterable[str | Variable],
        decay: float = 0.999,
        *,
        every_n_steps: int = 1,
        debias: bool = True,
        name: str = "ema",
        hook_name: str | None = None,
    ) -> None:
        arguments.given(decay=decay, every_n_steps=every_n_steps, debias=debias, name=name)
        arguments.not_negative(decay=decay)
        if decay >= 1:
            raise ValueError(f"decay must be below 1, got {decay!r}")
        arguments.instance(str, name=name)
        arguments.instance(bool, debias=debias)
        super().__init__(timer_of(None, every_n_steps=every_n_steps))
        self._places = {part: f"{name}/{part}" for part in _names(parameters)}
        self._decay = decay
        self._debias = debias
        self._name = name
        self._in_every_run = every_n_steps == 1
        self._averages: MovingAverages | None = None
        self._num_updates = 0
        self._session: RawSession | None = None  # which this hook has joined
        self.hook_name = hook_name

    @property
    def num_updates(self) -> int:
        """How many updates the averages have had."""
        return self._num_updates

    def substituted(self, session: RawSession) -> AbstractContextManager[None]:
        """Use the averages, if there are any yet, for the parameters inside the ``with`` block."""
        if self._averages is None:
            raise RuntimeError(
                "no session has the EmaHook whose averages were asked for: add it to the hooks"
            )
        if session_of(session) is self._session:
            self._update_at(session)  # an evaluation comes before other hooks
        if not self._num_updates:
            return nullcontext()
        return session_of(session).substituted(self._places)

    def begin(self) -> None:
        super().begin()
        if get_default_graph().opener is not None:
            title = get_default_graph().engine.title
            raise TypeError(
                f"EmaHook cannot add to a graph of {title}: use "
                "tf.train.ExponentialMovingAverage there"
            )
        self._averages = _averages_of(self._name, self._places)
        self._num_updates = 0

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        assert self._averages is not None
        with session_of(session).substituted(self._places):
            pass  # a name that nothing has is reported now
        super().after_create_session(session, coord)
        if self._timer.last_triggered_step() is None:
            self._num_updates = 0  # the training starts over
        self._session = session_of(session)

    def next_due(self) -> Due | None:
        return None if self._in_every_run else self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self._update_at(run_context.session)

    def _update_at(self, session: RawSession) -> None:
        step = step_of(session)
        if self._timer.should_trigger_for_step(step):
            assert self._averages is not None
            if self._debias:
                weight = (1 - self._decay) / (1 - self._decay ** (self._num_updates + 1))
            else:
                weight = 1 - self._decay if self._num_updates else 1.0
            self._averages.update(session, weight)
            self._timer.update_last_triggered_step(step)
            self._num_updates += 1

    def state_dict(self) -> Mapping[str, Any]:
        own = {"num_updates": self._num_updates, MOVING_AVERAGES: self._places}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state[MOVING_AVERAGES] != self._places:
            _log.warning(
                "the checkpoint has no averages called %s, which start over, but %s: to go on with "
                "these, give the EmaHook its former parameters and name",
                *(", ".join(it.values()) for it in (self._places, state[MOVING_AVERAGES])),
            )
            self._timer.reset()
            self._num_updates = 0
            return
        super().load_state_dict(state)
        self._num_updates = state["num_updates"]


def _names(parameters: str | Variable | Iterable[str | Variable]) -> list[str]:
    listed = [parameters] if isinstance(parameters, str | Variable) else parameters
    if not isinstance(listed, Iterable):
        raise TypeError(f"parameters must be a name, or a list of names, got {parameters!r}")
    found = [it.op.name if isinstance(it, Variable) else it for it in listed]
    if not found or not all(isinstance(it, str) and it for it in found):
        raise TypeError(f"parameters must be one name or more, got {parameters!r}")
    return list(dict.fromkeys(found))
