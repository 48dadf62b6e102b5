"""``BaseGraph``: a graph of any kind, the services of its framework, and the default graph."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from runhooks.arrays.trees import builtin_container_of, walk
from runhooks.errors import AbortedError, NanLossDuringTrainingError, UnavailableError
from runhooks.graph.objects import StatefulObjects


class GraphKeys:
    """The collections that sessions, scaffolds and hooks use."""

    #: What checkpoints hold.
    GLOBAL_VARIABLES = "variables"
    #: Variables of one session alone, such as the totals of a metric: no checkpoint holds them,
    #: and each session, one that replaces a lost one too, begins with their initial values.
    LOCAL_VARIABLES = "local_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    GLOBAL_STEP = "global_step"
    SUMMARIES = "summaries"
    SUMMARY_OP = "summary_op"
    SAVERS = "savers"
    INIT_OP = "init_op"
    READY_OP = "ready_op"
    READY_FOR_LOCAL_INIT_OP = "ready_for_local_init_op"
    LOCAL_INIT_OP = "local_init_op"
    #: How many steps are an epoch, where the data do not tell: one int.
    STEPS_PER_EPOCH = "steps_per_epoch"
    #: The input whose elements are the epochs.
    EPOCH_INPUT = "epoch_input"
    #: The inputs of evaluations, from which no run that makes a step may draw.
    EVALUATION_INPUTS = "evaluation_inputs"
    #: Operations that belong to every run that makes a step and all that they need.
    STEP_UPDATES = "step_updates"
    #: What the first run of an epoch does first: operations, functions without arguments, and
    #: variables, which get their initial values.
    EPOCH_RESETS = "epoch_resets"


class Log(Protocol):
    """The part of a logger that hooks use."""

    def info(self, msg: str, *args: Any) -> None: ...

    def warning(self, msg: str, *args: Any) -> None: ...

    def error(self, msg: str, *args: Any) -> None: ...


class RunTrace(Protocol):
    """Traces single runs, by options and metadata that travel with them."""

    @property
    def options(self) -> Any:
        """The run options that a traced run needs."""
        ...

    def add(self, step: int, run_metadata: Any) -> Path:
        """Write the trace of the run that led to ``step``; return its path."""
        ...


class ClosedSessionError(RuntimeError):
    """The session is closed.

    ``owner``: the session, or the object that holds its values.
    """

    def __init__(self, message: str, owner: object = None) -> None:
        super().__init__(message)
        self.owner = owner


class Framework:
    """The base of every framework, whether runhooks compiles graphs for it or it runs its own.

    The defaults are those of a framework that has nothing of the kind.
    """

    #: The name of the framework, for messages.
    name: ClassVar[str]

    #: How it is written in prose.
    title: ClassVar[str] = "another framework"

    #: Where hooks log: the logger whose level users of the framework have set.
    log: Log = logging.getLogger("runhooks")

    #: The error that a NaN loss raises: the one that programs of the framework catch.
    nan_loss_error: type[Exception] = NanLossDuringTrainingError

    #: Whether a run is one program of all ranks, whose values are those of all, or ranks are the
    #: framework's own affair.
    runs_one_program: ClassVar[bool] = False

    #: Whether a hook may have summaries and nowhere to write them, as programs of the framework do.
    may_drop_summaries: ClassVar[bool] = False

    def is_lost(self, error: BaseException) -> bool:
        """Return whether ``error`` means that the session is lost and may be replaced."""
        return isinstance(error, AbortedError | UnavailableError)

    def leaves(self, value: Any) -> dict[str, Any]:
        """Return the leaves of a value by path, such as ``"layers/0/kernel"``; ``""`` for an array.

        By default those in dicts, lists and tuples.
        """
        return dict(walk(value, of=builtin_container_of))

    def memory(self) -> dict[str, int]:
        """Return the memory statistics of the devices, such as ``{"cuda:0/allocated_bytes": 1}``.

        Does not wait for the devices. Empty if none has any.
        """
        return {}

    def details(self) -> dict[str, str]:
        """Return what a report on an installation says of it, by title: its devices, say.

        May start the devices.
        """
        return {}

    def message(self, message: Any) -> Any:
        """Return a ``Summary`` or ``SessionLog`` as the framework's own writers take it."""
        return message

    def share_event_file(self, writer: Any, directory: str | os.PathLike[str]) -> None:
        """Let the framework's own writers of ``directory`` write to the file of ``writer``."""

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path] | None:
        """Start the framework's profiler.

        Args:
            folder: An existing directory for the profile.
            step: The first global step in the profile, for the name of its file.

        Returns:
            A function that stops the profiler and returns the path of the profile; None if the
            framework has no profiler.

        Raises:
            RuntimeError: If a profiler is running already.
        """
        return None

    def trace_runs(
        self,
        folder: Path,
        output_dir: str | os.PathLike[str],
        graph: BaseGraph,
        *,
        show_dataflow: bool,
        show_memory: bool,
    ) -> RunTrace | None:
        """Return an object that traces single runs, to be used in place of ``start_profile``.

        It writes files to ``folder``, and ``graph`` and events to the event file of ``output_dir``.

        None, the default, if the profiler runs beside the session.
        """
        return None


#: A directory or a file; None: none was given.
Place: TypeAlias = str | os.PathLike[str] | None


class SessionOpener:
    """Opens sessions of one kind of graph, for creators, scaffolds and monitored sessions.

    A framework that runs graphs of its own extends it; ``BaseGraph.opener`` returns it. In the
    arguments, ``scaffold`` is a ``Scaffold``, and sessions are ``RawSession`` objects.
    """

    #: The framework's own scaffold classes, which creators take as well.
    scaffolds: tuple[type, ...] = ()

    #: Whether the sessions of all ranks of a group agree; False: the framework has its own way.
    joins_ranks: ClassVar[bool] = True

    #: Whether runhooks writes the checkpoints of its sessions; False: the framework's savers do.
    writes_checkpoints: ClassVar[bool] = True

    def check_target(self, master: str, config: Any) -> None:
        """Raise ValueError if sessions of this graph take no ``master`` or ``config``."""

    def resolve(self, place: str | os.PathLike[str]) -> str | os.PathLike[str]:
        """Return a path that means the same place whatever the working directory becomes."""
        return place

    def fill_scaffold(self, scaffold: Any) -> None:
        """Give ``scaffold`` the defaults it lacks; the graph may be added to for the last time."""
        raise NotImplementedError

    def default_local_init_op(self) -> Any:
        """Return the operation that every session runs unless its scaffold names another."""
        return None

    def open_chief(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Any:
        """Return a session that is restored, or else initialized, and ready.

        Raises:
            FailedPreconditionError: If the session is not ready.
        """
        raise NotImplementedError

    def try_worker(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Any, Exception | None]:
        """Return a session and None if the chief has made one ready, else None and the reason."""
        raise NotImplementedError

    def deadline_error(self, message: str, checkpoint_dir: Place) -> Exception:
        """Return the error for a worker that has waited too long."""
        raise NotImplementedError

    def prepare_graph(self) -> None:
        """Add to the graph, which is not final yet, what sessions of it need."""

    def as_raw_session(self, session: Any) -> Any:
        """Return ``session``, which a user's own creator made, as a ``RawSession``."""
        return session

    def start_threads(self, session: Any, coord: Any) -> None:
        """Start the threads that the graph asks for, under the coordinator ``coord``."""


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
        gathers: Operations that take all ranks to answer.
    """

    inputs: tuple[Any, ...] = ()
    assignments: tuple[Any, ...] = ()
    steps: frozenset[Any] = frozenset()
    step_captures: frozenset[Any] = frozenset()
    captures: frozenset[Any] = frozenset()
    reads: frozenset[Any] = frozenset()
    gathers: frozenset[Any] = frozenset()


class StepPart(Enum):
    """What a run does to the global step."""

    #: It increases it, or may; so do all runs of a graph in which nothing does.
    WHOLE = "whole"
    #: It makes a step that does not count, in a graph that has others which do.
    PART = "part"
    #: Nothing.
    NONE = "none"


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

    def add_epoch_mean(self, tensor: Any, weight: Any, name: str | None) -> Any:
        """Add a mean over the epoch, as ``rh.epoch_mean`` does.

        Raises:
            TypeError: If the framework has none.
        """
        raise self.not_ours(name or "epoch_mean")

    def resets_of(self, value: Any, update: Any) -> list[Any]:
        """Return what resets the local variables that ``update`` changes, and ``value`` reads.

        Raises:
            TypeError: If the graph is none of TensorFlow, whose metrics are such pairs.
        """
        raise TypeError("only metrics of a tf.Graph are pairs of a value and an update")

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

    def elements_fed(self, key: Any) -> list[Any]:
        """Return the tensors that ``key`` of a feed_dict stands for; raises as above."""
        return [self.as_graph_element(key)]

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

    def forget(self, names: Iterable[str]) -> None:
        """Forget those of ``names`` that may mean nothing; a run that asked for them has failed."""

    def is_defaulted(self, name: str) -> bool:
        """Return whether a step has a parameter of that name, and it has its default."""
        return False

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

    def preserved_objects(self) -> AbstractContextManager[None]:
        """As ``StatefulObjects.preserved``, where there are such objects."""
        return nullcontext() if self.objects is None else self.objects.preserved()


class _Stack(threading.local):
    def __init__(self) -> None:
        self.graphs: list[BaseGraph] = []


_stack = _Stack()
_finders: list[Callable[[], BaseGraph | None]] = []


@contextmanager
def entered(graph: BaseGraph) -> Iterator[None]:
    """Make ``graph`` the default graph of this thread inside the ``with`` block."""
    _stack.graphs.append(graph)
    try:
        yield
    finally:
        _stack.graphs.pop()


def find_default_graph_with(find: Callable[[], BaseGraph | None]) -> None:
    """Ask ``find`` for the default graph where none was entered, before those registered earlier.

    ``find`` returns None if it has none.
    """
    _finders.insert(0, find)


def get_default_graph() -> BaseGraph:
    """Return the graph of the innermost ``with graph.as_default()`` of this thread.

    Outside any, it is TensorFlow's graph if TensorFlow is building one, as in a ``with`` block of a
    ``tf.Graph``; otherwise one graph on the python engine that the whole process shares.
    """
    if _stack.graphs:
        return _stack.graphs[-1]
    found = (find() for find in _finders)
    return next(graph for graph in found if graph is not None)
