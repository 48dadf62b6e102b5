"""``Scaffold`` and ``SessionCreator``: what a session needs, and who creates it."""

from __future__ import annotations

import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from runhooks import arguments, clock
from runhooks.checkpoint import InitFrom, Saver, latest_checkpoint, restore_latest
from runhooks.checkpoint.format import check_no_tensorflow_checkpoints
from runhooks.contract import RawSession, StopRequest
from runhooks.errors import DeadlineExceededError, FailedPreconditionError
from runhooks.graph import GraphKeys, get_default_graph
from runhooks.graph.base import BaseGraph, Place, SessionOpener
from runhooks.graph.graph import Graph
from runhooks.ranks import current_group
from runhooks.session.session import Session
from runhooks.stores import is_url, normal, without_file_scheme
from runhooks.summary import merge_all

_log = logging.getLogger("runhooks")


class Scaffold:
    """What a session needs before training can begin, like ``tf.compat.v1.train.Scaffold``.

    What is not given is looked up in the graph's collection of the same name when the scaffold is
    finalized.

    Args:
        init_op: Run if there is no checkpoint to restore.
        init_feed_dict: Fed to ``init_op``.
        init_fn: Called as ``init_fn(scaffold, session)`` after ``init_op``.
        ready_op: Run last. It returns None, True or an empty array; anything else says why the
            session is not ready.
        ready_for_local_init_op: The same, run before ``local_init_op``.
        local_init_op: Run in every session, restored or not.
        summary_op: The summaries to save; None: ``merge_all()``.
        saver: None: a new ``Saver``.
        copy_from_scaffold: Another scaffold, for what is not given.
        local_init_feed_dict: Fed to ``local_init_op``.
        init_from: Weights to start from if there is no checkpoint to restore, after ``init_op``: an
            ``InitFrom``, or a path, from which all are taken.

    Raises:
        TypeError: For a scaffold, function, saver or ``InitFrom`` that is not one.
    """

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Scaffold, Session], Any] | None = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Saver | None = None,
        copy_from_scaffold: Any = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
        *,
        init_from: InitFrom | str | os.PathLike[str] | None = None,
    ) -> None:
        base = copy_from_scaffold
        kinds = (Scaffold, *opener_of(get_default_graph()).scaffolds)
        if base is not None and not isinstance(base, kinds):
            raise TypeError(f"copy_from_scaffold is not a Scaffold instance, got {base!r}")
        arguments.function(init_fn=init_fn)
        if saver is not None and not callable(getattr(saver, "save", None)):
            raise TypeError(f"saver must be a Saver, got {saver!r}")
        self.init_op: Any = _given(init_op, base, "init_op")
        self.init_feed_dict: Any = _given(init_feed_dict, base, "init_feed_dict")
        self._given_init_fn = init_fn
        if init_fn is None and isinstance(base, Scaffold):
            self._given_init_fn = base._given_init_fn
        elif init_fn is None and base is not None:
            self.init_fn = copy_from_scaffold.init_fn  # a framework's own hands itself to it
        self.ready_op: Any = _given(ready_op, base, "ready_op")
        self.ready_for_local_init_op: Any = _given(
            ready_for_local_init_op, base, "ready_for_local_init_op"
        )
        self.local_init_op: Any = _given(local_init_op, base, "local_init_op")
        self.local_init_feed_dict: Any = _given(local_init_feed_dict, base, "local_init_feed_dict")
        self.summary_op: Any = _given(summary_op, base, "summary_op")
        self.saver: Any = _given(saver, base, "saver")
        if init_from is None and isinstance(base, Scaffold):
            init_from = base.init_from
        elif init_from is not None and not isinstance(init_from, InitFrom):
            arguments.directory(init_from=init_from)
            init_from = InitFrom(init_from)
        self.init_from: InitFrom | None = init_from

    def finalize(self) -> Scaffold:
        """Fill in what was not given, and make the default graph final."""
        graph = get_default_graph()
        opener_of(graph).fill_scaffold(self)
        graph.finalize()
        return self

    @property
    def init_fn(self) -> Callable[[Any], Any] | None:
        """The given ``init_fn`` as a function of the session alone, or None."""
        return None if self._given_init_fn is None else partial(self._given_init_fn, self)

    @init_fn.setter
    def init_fn(self, init_fn: Callable[[Any], Any] | None) -> None:
        self._given_init_fn = None if init_fn is None else lambda _, session: init_fn(session)

    @staticmethod
    def get_or_default(
        arg_name: str, collection_key: str, default_constructor: Callable[[], Any]
    ) -> Any:
        """Return the item in the default graph's collection, or create and add it.

        Raises:
            RuntimeError: If the collection holds several.
        """
        graph = get_default_graph()
        found = graph.get_collection(collection_key)
        if len(found) > 1:
            raise RuntimeError(
                f"More than one item in the collection {collection_key!r}: give the scaffold the "
                f"one to use of {len(found)}, as {arg_name}=..."
            )
        if found:
            return found[0]
        made = default_constructor()
        if made is not None:
            graph.add_to_collection(collection_key, made)
        return made

    @staticmethod
    def default_local_init_op() -> Any:
        """Return the default ``local_init_op``; None except on a ``tf.Graph``."""
        return opener_of(get_default_graph()).default_local_init_op()


def _given(value: Any, base: Any, name: str) -> Any:
    return value if value is not None or base is None else getattr(base, name)


_SAY_AGAIN_SECS = 60.0


class SessionCreator(ABC):
    """Creates the raw sessions of a monitored session; extend it to create them yourself.

    The graph is final if ``create_session`` finalizes a scaffold.
    """

    #: Asked when the monitored session is to stop; a long ``create_session`` listens to it.
    stop_request = StopRequest()

    #: Whether this process is the chief, or does not say so: of several ranks one is.
    is_chief: ClassVar[bool] = True

    #: The directory whose latest checkpoint its sessions restore; None: they restore none.
    restores_from: str | os.PathLike[str] | None = None

    @abstractmethod
    def create_session(self) -> RawSession:
        """Return a new session of the default graph, ready to run."""


class _ScaffoldCreator(SessionCreator):
    def __init__(self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place) -> None:
        opener = opener_of(get_default_graph())
        opener.check_target(master, config)
        arguments.directory(checkpoint_dir=checkpoint_dir)
        if scaffold is not None and not isinstance(scaffold, (Scaffold, *opener.scaffolds)):
            raise TypeError(f"scaffold must be a Scaffold, got {scaffold!r}")
        self._scaffold: Any = scaffold or Scaffold()
        self._target = (master, config)
        self.restores_from = _resolved(checkpoint_dir)

    def _open_chief(self, checkpoint: Place = None) -> RawSession:
        opened: RawSession = opener_of(get_default_graph()).open_chief(
            self._scaffold.finalize(), *self._target, self.restores_from, checkpoint
        )
        return opened


class ChiefSessionCreator(_ScaffoldCreator):
    """Restores a checkpoint if there is one, and initializes the session otherwise.

    Args:
        scaffold: None: a new ``Scaffold``.
        master: The server of TensorFlow's sessions.
        config: Their configuration.
        checkpoint_dir: A directory whose newest sound checkpoint is restored.
        checkpoint_filename_with_path: A checkpoint to restore instead.

    Raises:
        ValueError: If both paths are given, or ``master`` or ``config`` for a runhooks graph.
        TypeError: If ``scaffold`` is not a scaffold.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_filename_with_path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(scaffold, master, config, checkpoint_dir)
        arguments.directory(checkpoint_filename_with_path=checkpoint_filename_with_path)
        if checkpoint_dir and checkpoint_filename_with_path:
            raise ValueError(
                "checkpoint_dir and checkpoint_filename_with_path cannot both be given, "
                f"got {checkpoint_dir!r} and {checkpoint_filename_with_path!r}"
            )
        self._checkpoint = _resolved(checkpoint_filename_with_path)

    def create_session(self) -> RawSession:
        """Raises FailedPreconditionError if the scaffold finds the session not ready."""
        return self._open_chief(self._checkpoint)


class WorkerSessionCreator(_ScaffoldCreator):
    """Starts from a checkpoint of the chief, the process with ``is_chief=True``.

    It waits until there is a checkpoint in ``checkpoint_dir`` and the scaffold finds the session
    ready. Without a ``checkpoint_dir``, and as one of several ranks, it starts as a chief does. On
    a ``tf.Graph`` it waits until the chief has made the session at ``master`` ready.

    Args:
        scaffold: As for ``ChiefSessionCreator``, like the next two.
        master: The server of TensorFlow's sessions.
        config: Their configuration.
        max_wait_secs: The maximum wait in seconds; None: forever.
        checkpoint_dir: Where the chief saves; on a ``tf.Graph``, only used in messages.
    """

    is_chief: ClassVar[bool] = False

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        max_wait_secs: float | None = 30 * 60,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(scaffold, master, config, checkpoint_dir)
        self._max_wait_secs = math.inf if max_wait_secs is None else max_wait_secs
        shown = os.fspath(checkpoint_dir or "")
        where = f" and checkpoint_dir={shown!r}" if shown else ""
        self._chief = f"the chief, the process with is_chief=True{where}"

    def create_session(self) -> RawSession:
        """Raises DeadlineExceededError if the chief takes too long, or at a request to stop."""
        opener = opener_of(get_default_graph())
        if opener.joins_ranks and current_group().size > 1:  # they start together
            return self._open_chief()
        scaffold = self._scaffold.finalize()
        start, said = clock.monotonic(), -math.inf
        while True:
            found, lacking = opener.try_worker(scaffold, *self._target, self.restores_from)
            if found is not None:
                session: RawSession = found
                return session
            now = clock.monotonic()
            waited, end = now - start, self.stop_request.reason
            if end is not None or waited >= self._max_wait_secs:
                end = end or f"max_wait_secs={self._max_wait_secs:g} has passed"
                message = (
                    f"waited {round(waited, 2):g} seconds for {self._chief}: {lacking}; is it "
                    f"running? ({end})"
                )
                raise opener.deadline_error(message, self.restores_from) from lacking
            if now >= said + _SAY_AGAIN_SECS:
                level, said = logging.WARNING if waited >= _SAY_AGAIN_SECS else logging.INFO, now
                message = "waiting for %s, %.0f of %g seconds: %s"
                _log.log(level, message, self._chief, waited, self._max_wait_secs, lacking)
            self.stop_request.wait(min(max(0.2, waited / 10), 5.0, self._max_wait_secs - waited))


def _resolved(place: Place) -> Place:
    return opener_of(get_default_graph()).resolve(place) if place else place


class OwnOpener(SessionOpener):
    """Opens sessions of graphs that runhooks computes."""

    def check_target(self, master: str, config: Any) -> None:
        if master:
            raise ValueError(
                f"master must be left out, got {master!r}: this engine connects to no server; a "
                "directory is given as checkpoint_dir="
            )
        if config is not None:
            raise ValueError(
                f"config must be left out, got {config!r}: it configures TensorFlow's sessions; "
                "configure the engine's framework itself"
            )

    def resolve(self, place: str | os.PathLike[str]) -> str | os.PathLike[str]:
        plain = without_file_scheme(place)
        return normal(os.fspath(plain)) if is_url(plain) else Path(plain).expanduser().absolute()

    def fill_scaffold(self, scaffold: Any) -> None:
        for name in ("init_op", "ready_op", "ready_for_local_init_op", "local_init_op"):
            if getattr(scaffold, name) is None:
                setattr(scaffold, name, scaffold.get_or_default(name, name, lambda: None))
        if scaffold.summary_op is None:
            summary_op = scaffold.get_or_default("summary_op", GraphKeys.SUMMARY_OP, _merged)
            # Of a final graph, they can still be saved one by one.
            summaries = get_default_graph().get_collection(GraphKeys.SUMMARIES) or None
            scaffold.summary_op = summaries if summary_op is None else summary_op
        if scaffold.saver is None:
            saver = scaffold.get_or_default("saver", GraphKeys.SAVERS, lambda: None)
            scaffold.saver = Saver() if saver is None else saver

    def open_chief(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Session:
        session = Session()
        try:
            restored = _restore(scaffold, session, checkpoint_dir, path)
            if restored is None:
                if scaffold.init_op is not None:
                    session.run(scaffold.init_op, scaffold.init_feed_dict)
                if scaffold.init_from is not None:
                    scaffold.init_from.load_into(session)
                if scaffold.init_fn is not None:
                    scaffold.init_fn(session)
            else:
                _log.info("resumed from step %s: %s", session.global_step, restored)
                if scaffold.saver.is_partial:
                    _log.warning(
                        "%s has restored the variables in var_list of its saver alone: all others, "
                        "and what hooks and inputs keep, start over",
                        restored,
                    )
            _check_ready(session, "ready_for_local_init_op", scaffold.ready_for_local_init_op)
            if scaffold.local_init_op is not None:
                session.run(scaffold.local_init_op, scaffold.local_init_feed_dict)
            _check_ready(session, "ready_op", scaffold.ready_op)
        except BaseException:
            session.close()  # the device may not hold it and the next
            raise
        return session

    def try_worker(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Session | None, Exception | None]:
        if checkpoint_dir and latest_checkpoint(checkpoint_dir) is None:
            return None, FailedPreconditionError("it has saved no checkpoint there yet")
        try:
            return self.open_chief(scaffold, master, config, checkpoint_dir, None), None
        except FailedPreconditionError as lacking:
            return None, lacking

    def deadline_error(self, message: str, checkpoint_dir: Place) -> Exception:
        path = None if not checkpoint_dir else str(checkpoint_dir)
        return DeadlineExceededError(message, path=path)


_OWN = OwnOpener()


def opener_of(graph: BaseGraph) -> SessionOpener:
    return graph.opener or _OWN


def _restore(scaffold: Any, session: Session, checkpoint_dir: Place, path: Place) -> str | None:
    if path:
        scaffold.saver.restore(session, path)
        return str(path)
    if not checkpoint_dir:
        return None
    restored = restore_latest(scaffold.saver, session, checkpoint_dir)
    if restored is None:
        check_no_tensorflow_checkpoints(checkpoint_dir)
    return restored


def _check_ready(session: Session, name: str, op: Any) -> None:
    answer = None if op is None else session.run(op)
    if answer is None:
        return
    lacking = np.asarray(answer)
    # A compiled function has one output shape: it can return True, but not an empty list.
    is_true = lacking.dtype == bool and lacking.shape == () and lacking
    if lacking.size and not is_true:
        raise FailedPreconditionError(
            f"the session is not ready: the scaffold's {name} returned {lacking.tolist()}"
        )


def _merged() -> Any:
    graph = get_default_graph()
    if graph.finalized:
        return None
    if not isinstance(graph, Graph):
        return merge_all()
    summaries = tuple(graph.get_collection(GraphKeys.SUMMARIES))
    return graph.added.get_or_make(("merge_all", summaries), merge_all)
