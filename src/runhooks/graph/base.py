"""``BaseGraph``: a graph of any kind, as session layers and hooks see it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Any, NamedTuple

from runhooks.graph.framework import Framework
from runhooks.graph.objects import StatefulObjects
from runhooks.graph.opener import SessionOpener


class Unknown(Enum):
    """The type of ``UNKNOWN``."""

    UNKNOWN = "unknown"


#: The form of a tensor that nobody knows before a run.
UNKNOWN = Unknown.UNKNOWN


class RunEffects(NamedTuple):
    """The effects of a run beyond the values it computes, as operations of the graph.

    Attributes:
        inputs: The inputs it draws from.
        assignments: The operations that change variables.
        steps: The steps it makes, which change the objects of the graph in place.
        step_captures: Operations whose value exists only in a run that makes a step.
        captures: Operations that capture values inside the objects, ``step_captures`` included.
        reads: Operations that read the objects.
    """

    inputs: tuple[Any, ...] = ()
    assignments: tuple[Any, ...] = ()
    steps: frozenset[Any] = frozenset()
    step_captures: frozenset[Any] = frozenset()
    captures: frozenset[Any] = frozenset()
    reads: frozenset[Any] = frozenset()


class StepPart(Enum):
    """What a run does to the global step."""

    #: It increases it, or may; so do all runs of a graph in which nothing does.
    WHOLE = "whole"
    #: It makes a step that does not count, in a graph that has others which do.
    PART = "part"
    #: Nothing.
    NONE = "none"


class EvaluationGraph:
    """A graph to evaluate in, beside that of the training; its ``graph`` has a global step."""

    graph: Any

    def draw(self, given: Any) -> tuple[Any, Any]:
        """Add the features and labels of ``given``, the result of an ``input_fn``."""
        raise NotImplementedError

    def draws(self, fetches: Any) -> bool:
        """Return whether ``fetches`` draw from an input, and so may come to its end."""
        raise NotImplementedError

    def complete(self) -> None:
        """Add what is missing once the model is there; the graph is final then."""

    def copy_variables(self, session: Any, training: Any, names: Collection[str]) -> None:
        """Give the variables of these names, in ``session``, their values in ``training``.

        Raises:
            ValueError: If the values do not fit.
        """
        raise NotImplementedError

    def start_inputs(self, session: Any, coord: Any) -> None:
        """Start the inputs in a new session; their threads run under ``coord``."""


class StopFlag:
    """A variable that all sessions of a cluster share, by which a chief stops the workers."""

    #: The tensor that a worker fetches to see whether the flag is set.
    tensor: Any

    def set(self, session: Any) -> None:
        """Tell all workers to stop."""
        raise NotImplementedError

    def clear(self, session: Any) -> None:
        """Tell all workers to go on, whatever a checkpoint has brought back."""
        raise NotImplementedError


class BaseGraph:
    """A graph as session layers and hooks see it: one of runhooks, or a framework's own.

    Elements (tensors and operations) are those of the graph's kind.
    """

    @property
    def engine(self) -> Framework:
        """The framework that computes it."""
        raise NotImplementedError

    @property
    def launched(self) -> Any:
        """The graph object that its sessions have: this one, or a framework's own graph."""
        return self

    @property
    def objects(self) -> StatefulObjects | None:
        """The objects that its steps change in place, beside variables; None if there are none."""
        return None

    @property
    def opener(self) -> SessionOpener | None:
        """How its sessions are created; None: by ``runhooks.session``."""
        return None

    def as_default(self) -> AbstractContextManager[Any]:
        """Make this the default graph of the thread inside the ``with`` block."""
        raise NotImplementedError

    def in_use(self) -> AbstractContextManager[None]:
        """Mark it as being run inside the ``with`` block.

        A graph that was finalized inside the block can be added to again when its last user has
        left, as in TensorFlow, so that the hooks of the next session can add to it.
        """
        raise NotImplementedError

    def finalize(self) -> None:
        """Make it read-only: adding to it raises RuntimeError from now on."""
        raise NotImplementedError

    @property
    def finalized(self) -> bool:
        """Whether it is read-only."""
        raise NotImplementedError

    def add(self, *args: Any, **kwargs: Any) -> Any:
        """Add an operation; see ``Graph.add``.

        Raises:
            TypeError: If only the framework itself can add to the graph.
        """
        raise self.not_ours(str(kwargs.get("name")))

    def not_ours(self, name: str) -> TypeError:
        """Return the error for adding ``name`` to a graph that only its framework builds."""
        framework = self.engine.title
        return TypeError(
            f"{name!r} cannot be added to the default graph, which is {framework}'s: build it with "
            f"{framework}, or enter a graph of runhooks, with rh.Graph().as_default()"
        )

    def form_of(self, tensor: Any) -> Any:
        """Return the value of ``tensor`` with shapes and dtypes in place of arrays, or UNKNOWN."""
        return UNKNOWN

    def constant(self, value: Any) -> Any:
        """Return an array among the arguments of an operation, put where the graph computes."""
        return value

    def check_text(self, text: str) -> None:
        """Raise TypeError if ``text``, an argument of an operation, is the name of a tensor.

        Only graphs in which values have names do.
        """

    def check_initial(self, name: str, value: Any) -> None:
        """Raise TypeError if ``value`` cannot be the initial value of a variable."""

    @property
    def scope(self) -> str:
        """The current name scope with its "/"; "" outside any, or if its framework keeps it."""
        return ""

    def name_scope(self, name: str) -> AbstractContextManager[str]:
        """Prefix the names of what is added inside the ``with`` block with ``name + "/"``."""
        raise NotImplementedError

    def unique_tag(self, name: str) -> str:
        """Return ``name`` under the current scope, made unique among the tags of summaries."""
        raise self.not_ours(name)

    def add_assignment(self, variable: Any, value: Any, *, increment: bool, name: str) -> Any:
        """Add an operation that assigns ``value`` to ``variable``, or adds it to the old value."""
        raise NotImplementedError

    def get_operations(self) -> list[Any]:
        """Return all operations."""
        raise NotImplementedError

    def get_operation_by_name(self, name: str) -> Any:
        """Return the operation of that name; raise KeyError if there is none."""
        raise NotImplementedError

    def get_tensor_by_name(self, name: str) -> Any:
        """Return the tensor of that name, such as ``"loss:0"``; raise KeyError if there is none."""
        raise NotImplementedError

    def as_graph_element(self, element: Any) -> Any:
        """Return the tensor or operation that ``element``, itself or its name, stands for.

        Raises:
            KeyError, ValueError: For an unknown name or an element of another graph.
            TypeError: For anything that is not a tensor, operation or name.
        """
        raise NotImplementedError

    def add_to_collection(self, key: str, value: Any) -> None:
        """Add ``value`` to the collection ``key``."""
        raise NotImplementedError

    def get_collection(self, key: str) -> list[Any]:
        """Return a copy of the collection ``key``; empty if there is none."""
        raise NotImplementedError

    def check_run(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> None:
        """Raise ValueError or TypeError if a run of ``fetches`` cannot be made.

        ``feed_keys`` are the tensors that it is fed. A framework that checks only when it runs
        raises nothing here.
        """

    def effects_of(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> RunEffects:
        """Return the effects of a run of ``fetches``; empty where the framework tells none.

        Placeholders count as fed. Raises as ``check_run`` does.
        """
        return RunEffects()

    def step_part(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> StepPart:
        """Return what a run of ``fetches`` does to the global step.

        Raises as ``check_run`` does.
        """
        return StepPart.WHOLE

    def has_effect(self, element: Any) -> bool:
        """Return whether ``element`` changes or reads the objects of the graph."""
        return False

    def is_value(self, element: Any) -> bool:
        """Return whether ``element`` is a variable or a part of one, or what a step takes or gives.

        It is no summary then.
        """
        return False

    def preserved_objects(self, what: str) -> AbstractContextManager[None]:
        """As ``StatefulObjects.preserved``, where there are such objects."""
        return nullcontext() if self.objects is None else self.objects.preserved(what)

    def evaluation_graph(self) -> EvaluationGraph | None:
        """Return an empty graph to evaluate in; None: ``runhooks.hooks`` makes one."""
        return None

    def stop_flag(self) -> StopFlag | None:
        """Return the flag by which a chief stops its workers; None if sessions share nothing."""
        return None
