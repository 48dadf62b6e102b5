"""``BaseGraph``: a graph of any kind, its framework, its objects and the default graph."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runhooks.arrays.shards import Share
from runhooks.arrays.trees import builtin_container_of, walk
from runhooks.errors import AbortedError, NanLossDuringTrainingError, UnavailableError


class GraphKeys:
    """The collections that sessions, scaffolds and hooks use."""

    #: What checkpoints hold.
    GLOBAL_VARIABLES = "variables"
    #: Variables that no checkpoint holds, such as the totals of a metric: each session begins with
    #: their initial values.
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
    #: How many steps are an epoch, if the program says so: one int.
    STEPS_PER_EPOCH = "steps_per_epoch"
    #: The input whose elements are the epochs.
    EPOCH_INPUT = "epoch_input"
    #: The inputs of evaluations, from which no run that makes a step may draw.
    EVALUATION_INPUTS = "evaluation_inputs"
    #: Operations of every run that makes a step and computes what they need.
    STEP_UPDATES = "step_updates"
    #: What the first run of an epoch does first: operations, functions, and variables, which get
    #: their initial values.
    EPOCH_RESETS = "epoch_resets"


class Log(Protocol):
    """What hooks use of a logger."""

    def info(self, msg: str, *args: Any) -> None: ...

    def warning(self, msg: str, *args: Any) -> None: ...

    def error(self, msg: str, *args: Any) -> None: ...


class RunTrace(Protocol):
    """Traces single runs, which need the run options ``options``."""

    @property
    def options(self) -> Any: ...

    def add(self, step: int, run_metadata: Any) -> Path:
        """Write the trace of the run that led to ``step``; return its path."""


class ClosedSessionError(RuntimeError):
    """The session is closed; ``owner`` is the session, or what holds its values."""

    def __init__(self, message: str, owner: object = None) -> None:
        super().__init__(message)
        self.owner = owner


class Framework:
    """A framework that runhooks runs graphs for, or that runs its own."""

    name: ClassVar[str]

    #: Its name in prose.
    title: ClassVar[str] = "another framework"

    log: Log = logging.getLogger("runhooks")

    #: The error of a NaN loss, which programs of the framework catch.
    nan_loss_error: type[Exception] = NanLossDuringTrainingError

    #: Whether a run is one program of all ranks, or ranks are the framework's own affair.
    runs_one_program: ClassVar[bool] = False

    #: Whether a hook may have summaries and nowhere to write them.
    may_drop_summaries: ClassVar[bool] = False

    def is_lost(self, error: BaseException) -> bool:
        """Return whether ``error`` means that the session is lost and may be replaced."""
        return isinstance(error, AbortedError | UnavailableError)

    def leaves(self, value: Any) -> dict[str, Any]:
        """Return the leaves by path, as ``"layers/0/kernel"``; ``""`` for a bare leaf.

        By default those in dicts, lists and tuples.
        """
        return dict(walk(value, of=builtin_container_of))

    def constant(self, value: Any) -> Any:
        """Return an array among the arguments of a call, put where the engine computes."""
        return value

    def check_initial(self, name: str, value: Any) -> None:
        """Raise TypeError if a variable cannot begin with ``value``; a function is not called."""

    def memory(self) -> dict[str, int]:
        """Return statistics of the devices, as ``{"cuda:0/allocated_bytes": 1}``; do not wait."""
        return {}

    def details(self) -> dict[str, str]:
        """Return what ``runhooks doctor`` says of it, by title; may start devices."""
        return {}

    def message(self, message: Any) -> Any:
        """Return a ``Summary`` or ``SessionLog`` as the framework's writers take it."""
        return message

    def share_event_file(self, writer: Any, directory: str | os.PathLike[str]) -> None:
        """Let the framework's own writers of ``directory`` write to the file of ``writer``."""

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path] | None:
        """Start the profiler, if any; return what stops it and returns the path of the profile.

        ``folder`` exists; ``step`` is the first one. RuntimeError: one is running already.
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
        """Return what traces single runs in place of ``start_profile``, if anything does.

        It writes to ``folder``, and ``graph`` and events to the event file of ``output_dir``.
        """
        return None


Place: TypeAlias = str | os.PathLike[str] | None


class SessionOpener:
    """Opens sessions of the graphs that a framework runs itself: ``BaseGraph.opener``.

    A ``scaffold`` is a ``Scaffold``, a session a ``RawSession``.
    """

    #: The framework's own scaffold classes.
    scaffolds: tuple[type, ...] = ()

    #: Whether runhooks lets all ranks agree.
    joins_ranks: ClassVar[bool] = True

    #: Whether runhooks writes the checkpoints; False: the framework's savers do.
    writes_checkpoints: ClassVar[bool] = True

    def check_target(self, master: str, config: Any) -> None:
        """Raise ValueError if sessions of this graph take no ``master`` or ``config``."""

    def resolve(self, place: str | os.PathLike[str]) -> str | os.PathLike[str]:
        """Return a path to ``place`` from any working directory."""
        return place

    def fill_scaffold(self, scaffold: Any) -> None:
        """Give ``scaffold`` the defaults it lacks; this may add to the graph."""
        raise NotImplementedError

    def default_local_init_op(self) -> Any:
        """Return the operation that every session runs unless its scaffold names another."""
        return None

    def open_chief(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Any:
        """Return a restored or initialized session; FailedPreconditionError: it is not ready."""
        raise NotImplementedError

    def try_worker(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Any, Exception | None]:
        """Return a session and None; or None and the reason if the chief has none ready."""
        raise NotImplementedError

    def deadline_error(self, message: str, checkpoint_dir: Place) -> Exception:
        raise NotImplementedError

    def prepare_graph(self) -> None:
        """Add to the graph, which is not final yet, what sessions of it need."""

    def as_raw_session(self, session: Any) -> Any:
        """Return what a user's own creator made as a ``RawSession``."""
        return session

    def start_threads(self, session: Any, coord: Any) -> None:
        """Start the threads that the graph asks for."""


class Resized(NamedTuple):
    """What ``rank`` of ``size`` has to know of a checkpoint that ``saved`` ranks have saved.

    Random states begin with ``seed``, the same on all. Arrays in ``differing``, which differed
    between ranks, get the chief's values.
    """

    saved: int
    size: int
    rank: int
    seed: int
    differing: frozenset[str] = frozenset()

    def seed_of(self, name: str) -> int:
        """Return the seed of this rank's generator ``name``: 63 bits."""
        entropy = [self.seed, self.rank, *name.encode()]
        return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]) >> 1


#: The prefix of the names of the objects' states in a snapshot.
OBJECT_STATES = "objects/"

#: Objects of graphs of ``rh.torch``: random generators, and gradients not applied yet.
RANDOM_STATES, PENDING = "random", "gradients"

#: The key of the versions of its classes in the state of a module.
MODULE_VERSIONS = "metadata"

#: ``(STANDS_FOR_ARRAY, name)`` in a state stands for that array; strides follow if not C's.
STANDS_FOR_ARRAY = "runhooks.tensor"


def stands_for_array(value: Any) -> bool:
    is_tuple = type(value) is tuple and len(value) in (2, 3)
    return is_tuple and type(value[0]) is str and value[0] == STANDS_FOR_ARRAY


Arrays = Mapping[str, NDArray[Any]]


class StatefulObjects(Protocol):
    """Objects that the steps of a graph change in place, in all its sessions."""

    @property
    def names(self) -> list[str]:
        """The names of those that checkpoints hold."""

    @property
    def changed(self) -> bool:
        """Whether a step was begun since they were last loaded or settled."""

    def settle(self) -> None:
        """Let sessions begin with their present state."""

    def save(
        self, into: Arrays | None = None, share: Share | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return their arrays, named ``"<object>/<path>"``, and the rest of their states by object.

        ``into`` is as for ``Engine.to_host``, by name. For a ``share`` of several ranks, arrays of
        which it writes a part are ``ShardedArray`` objects. TypeError: a state cannot be saved.
        """

    def is_spread(self, name: str) -> bool:
        """Return whether ranks hold parts of the value ``name``: all must ask for it."""

    def owns(self, name: str) -> bool:
        """Return whether an array of that name would be one of theirs."""

    def preserved(self) -> AbstractContextManager[None]:
        """Put training modes back after the block, generators after the outermost."""

    def loader(
        self,
        arrays: Mapping[str, Any],
        states: Mapping[str, Any],
        only: Collection[str] | None,
        resized: Resized | None = None,
        *,
        is_given: bool = False,
    ) -> Callable[[], None]:
        """Return a function that loads what ``save`` returned.

        ``arrays`` may be ``ArraySource`` objects; if ``is_given``, nothing else uses their memory.
        ``only`` names the objects to load; None: all. ValueError: the states do not fit;
        then nothing has changed.
        """

    def read(self, name: str) -> dict[str, NDArray[Any]]:
        """As ``RawSession.read``, of a part of the objects."""

    def assigner(self, values: Mapping[str, Any]) -> Callable[[], None]:
        """Return a function that assigns ``values``, by the names that ``read`` returns.

        ValueError: nothing has a name, or a value does not fit.
        """

    def substituted(self, places: Mapping[str, str]) -> AbstractContextManager[None]:
        """As ``RawSession.substituted``, of parts of the objects and their averages."""

    def averages(self, name: str, parts: Collection[str]) -> Callable[[float], None]:
        """Keep moving averages of ``parts``, saved as ``"<name>/<part>"``; the same if asked again.

        Return what moves them to the present values by a weight as of ``Engine.average``.
        ValueError: nothing has the name of a part, or ``name`` is taken.
        """


#: The form of a tensor that nobody knows before a run.
UNKNOWN: Any = object()


class RunEffects(NamedTuple):
    """The operations of a run by their ``Effect``; ``captures`` include ``step_captures``."""

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
    NONE = "none"


class BaseGraph:
    """A graph as session layers and hooks see it: one of runhooks, or a framework's own.

    Methods without a text are those of ``Graph``.
    """

    #: The current name scope with its "/"; "" if its framework keeps it.
    scope = ""

    _users = 0
    _is_final = False

    @property
    def engine(self) -> Framework:
        raise NotImplementedError

    @property
    def launched(self) -> Any:
        """The graph object that its sessions have."""
        return self

    @property
    def objects(self) -> StatefulObjects | None:
        """The objects that its steps change in place; None: there are none."""
        return None

    @property
    def opener(self) -> SessionOpener | None:
        """How its sessions are created; None: by ``runhooks.session``."""
        return None

    def as_default(self) -> AbstractContextManager[Any]:
        raise NotImplementedError

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Mark it as in use in the ``with`` block; its last user undoes a ``finalize`` inside."""
        if self._users == 0:
            self._is_final = self.finalized
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0 and not self._is_final:
                self.reopen()

    def finalize(self) -> None:
        """Make it read-only: adding to it raises RuntimeError from now on."""
        raise NotImplementedError

    def reopen(self) -> None:
        """Undo ``finalize``."""
        raise NotImplementedError

    @property
    def finalized(self) -> bool:
        raise NotImplementedError

    def add(self, *args: Any, **kwargs: Any) -> Any:
        """As ``Graph.add``; TypeError: only the framework can add to the graph."""
        raise self.not_ours(str(kwargs.get("name")))

    def not_ours(self, name: str) -> TypeError:
        return TypeError(f"{name!r} cannot be added to the default graph, which is {self.whose}")

    @property
    def whose(self) -> str:
        """Whose it is, and what to do, as the end of a message."""
        framework = self.engine.title
        return (
            f"{framework}'s: build it with {framework}, or enter a graph of runhooks, with "
            "rh.Graph().as_default()"
        )

    def form_of(self, tensor: Any) -> Any:
        """Return ``tensor`` with shapes and dtypes for arrays, or UNKNOWN."""
        return UNKNOWN

    def check_text(self, text: str) -> None:
        """Raise TypeError if ``text``, an argument of an operation, is the name of a value."""

    def name_scope(self, name: str) -> AbstractContextManager[str]:
        raise NotImplementedError

    def unique_tag(self, name: str) -> str:
        raise self.not_ours(name)

    def add_assignment(self, variable: Any, kind: str, value: Any, name: str | None) -> Any:
        raise NotImplementedError

    def add_epoch_mean(self, tensor: Any, weight: Any, name: str | None) -> Any:
        """As ``rh.epoch_mean``; TypeError: there is none."""
        raise self.not_ours(name or "epoch_mean")

    def resets_of(self, value: Any, update: Any) -> list[Any]:
        """Return what resets a metric of TensorFlow; TypeError: the graph is not TensorFlow's."""
        raise TypeError("only metrics of a tf.Graph are pairs of a value and an update")

    def get_operations(self) -> list[Any]:
        raise NotImplementedError

    def get_operation_by_name(self, name: str) -> Any:
        raise NotImplementedError

    def get_tensor_by_name(self, name: str) -> Any:
        raise NotImplementedError

    def as_graph_element(self, element: Any) -> Any:
        """As ``Graph.as_graph_element``; an unknown name may also raise KeyError."""
        raise NotImplementedError

    def elements_fed(self, key: Any) -> list[Any]:
        """Return the tensors that ``key`` of a feed_dict means; raises as ``as_graph_element``."""
        return [self.as_graph_element(key)]

    def add_to_collection(self, key: str, value: Any) -> None:
        raise NotImplementedError

    def get_collection(self, key: str) -> list[Any]:
        raise NotImplementedError

    def check_run(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> None:
        """Raise ValueError or TypeError if a run cannot be made, if that is known before it."""

    def forget(self, names: Iterable[str]) -> None:
        """Forget those of ``names``, of a run that has failed, which may mean nothing."""

    def is_defaulted(self, name: str) -> bool:
        """Return whether ``name`` is a parameter of a step that has its default."""
        return False

    def effects_of(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> RunEffects:
        """Return the effects of a run with all placeholders fed; raises as ``check_run``."""
        return RunEffects()

    def step_part(self, fetches: Any, feed_keys: Iterable[Any] = ()) -> StepPart:
        """Return what a run does to the global step; raises as ``check_run``."""
        return StepPart.WHOLE

    def is_value(self, element: Any) -> bool:
        """Return whether ``element`` is of a variable or object, or what a step takes or gives."""
        return False

    def preserved_objects(self) -> AbstractContextManager[None]:
        return nullcontext() if self.objects is None else self.objects.preserved()


class _Stack(threading.local):
    def __init__(self) -> None:
        self.graphs: list[BaseGraph] = []


_stack = _Stack()
_finders: list[Callable[[], BaseGraph | None]] = []


@contextmanager
def entered(graph: BaseGraph) -> Iterator[None]:
    _stack.graphs.append(graph)
    try:
        yield
    finally:
        _stack.graphs.pop()


def find_default_graph_with(find: Callable[[], BaseGraph | None]) -> None:
    """Ask ``find``, before those registered earlier, for the default graph if none was entered."""
    _finders.insert(0, find)


def get_default_graph() -> BaseGraph:
    """Return the graph of the innermost ``with graph.as_default()`` of this thread.

    Outside any, it is the graph that TensorFlow is building, or else one on the python engine that
    all threads share.
    """
    if _stack.graphs:
        return _stack.graphs[-1]
    found = (find() for find in _finders)
    return next(graph for graph in found if graph is not None)
