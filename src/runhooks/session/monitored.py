"""``MonitoredSession``: a session with hooks, which survives its loss."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

from runhooks import arguments
from runhooks.contract import CallableRuns, RawSession, SessionRunArgs, SessionRunHook, StopRequest
from runhooks.errors import PeerFailedError, cause, described, good_ends
from runhooks.graph import get_default_graph
from runhooks.ranks import Group, current_group
from runhooks.session.agreement import Agreement, stopped
from runhooks.session.hook_list import HookList, caught, raise_first
from runhooks.session.hooked import ANOTHER, Iteration, LiveSession
from runhooks.session.interruption import Interruption, tell_stopping
from runhooks.session.plain_log import show_log
from runhooks.session.recoverable import RecoverableSession, RecoveryPolicy, run_watched
from runhooks.session.scaffold import ChiefSessionCreator, Scaffold, SessionCreator, opener_of
from runhooks.session.threads import Coordinator
from runhooks.stores.interruption import forget_interrupt


class StepContext(NamedTuple):
    """What a step function gets; ``session`` is the raw session."""

    session: RawSession
    run_with_hooks: Callable[..., Any]

    def request_stop(self) -> None:
        """End the loop well: raise StopIteration."""
        raise StopIteration("the step function has asked to stop")


_log = logging.getLogger("runhooks")


class CoordinatedCreator(NamedTuple):
    """As TensorFlow's; both are None after its end."""

    tf_sess: RawSession | None
    coord: Coordinator | None


class MonitoredSession(CallableRuns):
    """Runs the default graph with hooks, as ``tf.compat.v1.train.MonitoredSession`` does.

    It saves nothing by itself. The ``with`` block ends normally on OutOfRangeError and
    StopIteration; ``close`` may be called twice. Dropped without it, a session calls no ``end``,
    and releases the signals.

    In the main thread, SIGTERM and the first Ctrl-C make ``should_stop()`` true. A loop that never
    calls it makes one more run; the next one raises OutOfRangeError.

    Args:
        session_creator: Creates the raw sessions; None: a ``ChiefSessionCreator()``.
        hooks: Called in this order, but for those with ``first`` or ``last``.
        stop_grace_period_secs: The seconds threads may take to stop.
        recovery: When a lost session is replaced, and its run repeated.
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Iterable[SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
        *,
        recovery: RecoveryPolicy | None = None,
    ) -> None:
        arguments.not_negative(stop_grace_period_secs=stop_grace_period_secs)
        arguments.instance(RecoveryPolicy, recovery=recovery)
        show_log()
        self._graph = get_default_graph()
        self._hook_list = HookList(hooks)
        self._stop = StopRequest()
        self._tests_stop = False  # whether should_stop() was called
        self._calls_hooks = False  # whether a run with all hooks was made
        self._asks_first = False  # whether run has to ask if it may
        self._runs_left = 0  # before run ends the loop, after a signal
        self._ends_step = False  # whether a stop waits for the end of the step
        self._iteration = Iteration()
        self._agreement: Agreement | None = None
        self._is_over = False
        creator = session_creator or ChiefSessionCreator()
        says_chief = True
        if isinstance(creator, SessionCreator):  # not one of TensorFlow's
            creator.stop_request, says_chief = self._stop, creator.is_chief
        policy = recovery or RecoveryPolicy()
        forget_interrupt()
        with ExitStack() as at_end:
            at_end.enter_context(self._graph.in_use())
            if opener_of(self._graph).joins_ranks and current_group().size > 1:
                policy = RecoveryPolicy(failures=0)  # no rank can go back alone
                self._join(current_group(), says_chief)
            try:
                with self._graph.as_default():
                    self._hook_list.begin()
                self._session = RecoverableSession(
                    self._graph,
                    creator,
                    self._hook_list,
                    self._stop,
                    stop_grace_period_secs,
                    policy,
                    self._iteration,
                )
                if self._agreement is not None:
                    self._agreement.open(self._live())
            except BaseException as error:
                outcome = self._blamed(error, None)
                self._hook_list.on_exception(None, outcome)
                self._leave([outcome])
                if outcome is error:
                    raise
                raise outcome from error
            at_end.enter_context(Interruption(self._interrupt))
            self._at_end = at_end.pop_all()

    @property
    def graph(self) -> Any:
        """The graph it runs, which may be a ``tf.Graph``."""
        return self._graph.launched

    @property
    def global_step(self) -> int | None:
        """The global step, known without a run; None if the graph has none.

        After ``close``, and while a lost session is replaced, its last value.
        """
        return self._session.global_step

    @property
    def epoch(self) -> int | None:
        """The number of the epoch that the last step belongs to, from 1; 0 before the first step.

        None if nothing says when one ends, after ``close``, and while a lost session is replaced.
        """
        raw = self._tf_sess()
        return None if raw is None else raw.epoch

    @property
    def stop_reason(self) -> str | None:
        """Why it stops: the hook or signal that asked, or the reason given to ``request_stop``."""
        live = self._session.session
        return self._stop.reason or (None if live is None else live.stop_reason)

    @property
    def recoveries(self) -> int:
        """The number of lost sessions that were replaced."""
        return self._session.recoveries

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: Iterable[SessionRunHook] | bool | None = None,
    ) -> Any:
        """Compute ``fetches`` and the requests of hooks in one run.

        Args:
            fetches: As for ``Session.run``, like the next three.
            feed_dict: Values by tensor.
            options: TensorFlow's.
            run_metadata: TensorFlow's.
            hooks: False: none. A list: only these; one that is new to the session begins now, and
                takes part in the runs that name it.

        Raises:
            RuntimeError: After ``close``; unless ``hooks`` is given, after a hook asked to stop.
            Exception: Whatever the run, a hook or a thread raises.
        """
        if (
            not self._is_over
            and hooks is None
            and options is None
            and run_metadata is None
            and (live := self._session.session) is not None
            and not live.coord.stop_requested  # by a thread, which may have failed
            and not self._asks_first  # no signal has come, and there are no other ranks
        ):
            self._calls_hooks = True
            try:
                result = live.hooked.again(fetches, feed_dict)
            except Exception as error:  # noqa: BLE001 - raised there, unless the session is lost
                caller = SessionRunArgs(fetches, feed_dict)
                return self._session.run_after(live, error, caller)
            if result is not ANOTHER:
                return result
        return self._run_through_layers(
            SessionRunArgs(fetches, feed_dict, options), run_metadata, hooks
        )

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Call ``step_fn(step_context)`` and return its result.

        Its only argument must be called ``step_context``. It may run the raw
        ``step_context.session``, and call ``step_context.run_with_hooks``.

        Raises:
            TypeError, ValueError: If ``step_fn`` is not such a function.
        """
        if not callable(step_fn):
            raise TypeError(f"step_fn must be a function of one `step_context`, got {step_fn!r}")
        parameters = inspect.signature(step_fn).parameters.values()
        by_position = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [it.name for it in parameters if it.kind in by_position]
        if names not in (["step_context"], ["self", "step_context"]):
            raise ValueError(
                "`step_fn` may either have one `step_context` argument or, as a method, `self` "
                f"before it, got {step_fn!r} with the arguments {names}"
            )
        self._check_open("run_step_fn")
        self._take_run(None)
        return self._call(lambda live: step_fn(StepContext(live.raw, partial(self._run_in, live))))

    def should_stop(self) -> bool:
        """Return whether the loop should end; always False in an ``iteration()``."""
        self._tests_stop = True
        if self._iteration.is_open:
            return False
        if self._is_over or self._stop.reason is not None:
            return not self._finishes_step
        if self._agreement is not None:
            return self._agreement.should_stop(self._live())
        return self._session.should_stop()

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Return a context for the runs of one iteration of the loop: all of them, or none.

        Checkpoints, evaluations and stops wait for its end (``docs/epochs.md``). A session lost
        inside is not replaced.

        Raises:
            RuntimeError: Inside another iteration, after ``close``, or after a hook asked to stop.
        """
        self._check_open("iteration")
        if self._iteration.is_open:
            raise RuntimeError("iteration() was called inside another iteration: leave it first")
        # A loop that does not ask should_stop() ends here.
        if self._agreement is None:
            self._take_run(None)
            if (live := self._session.session) is not None:
                live.hooked.check_stop("iteration")
        elif self._agreement.should_stop(self._live()):
            raise stopped(self.stop_reason)
        self._session.call(lambda live: live.hooked.begin_iteration())
        self._iteration.is_open = True
        try:
            yield
        except good_ends():  # of the data
            self._end_iteration()
            raise
        finally:
            self._iteration.is_open = False
        self._end_iteration()

    def request_stop(self, reason: str = "request_stop was called") -> None:
        """Make ``should_stop()`` true. Any thread or signal handler may call it.

        A loop that never calls ``should_stop()`` goes on, unlike after a signal.
        """
        (self._agreement or self._stop).ask(reason)

    def close(self) -> None:
        """End normally: call ``end`` on every hook, stop the threads, close the session.

        If parts of it raise, the first error is raised at the end, with notes on the others.
        """
        self._close(None)

    StepContext = StepContext  # as in TensorFlow

    # Private names of TensorFlow's, which programs use.

    @property
    def _hooks(self) -> tuple[SessionRunHook, ...]:
        return tuple(self._hook_list.by_name.values())

    def _tf_sess(self) -> RawSession | None:
        live = self._session.session
        return None if live is None else live.raw

    _sess = property(_tf_sess)

    def _is_closed(self) -> bool:
        return self._is_over

    @property
    def _coordinated_creator(self) -> CoordinatedCreator:
        live = self._session.session
        return CoordinatedCreator(self._tf_sess(), None if live is None else live.coord)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a {type(self).__name__} has no {name!r}: session.run(x, hooks=False) returns x; the "
            "session that hooks get is run_step_fn(lambda step_context: step_context.session)"
        )

    def __enter__(self) -> MonitoredSession:
        return self

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> bool:
        if exc is not None and self._is_good_end(exc):
            self.request_stop(cause(exc))
            exc = None
        self._close(exc)
        return exc is None

    def _run_through_layers(
        self,
        caller: SessionRunArgs,
        run_metadata: Any,
        hooks: Iterable[SessionRunHook] | bool | None,
    ) -> Any:
        self._check_open("run")
        self._take_run(hooks)
        named = hooks if isinstance(hooks, bool | None) else list(hooks)

        def run(live: LiveSession) -> Any:
            return self._run_in(live, *caller, run_metadata, hooks=named)

        if named is None or named is True:
            self._calls_hooks = True
            return self._call(run)
        if self._agreement is not None:
            self._agreement.ran_beside = True
        return self._session.call(run)

    def _run_in(
        self,
        live: LiveSession,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: Iterable[SessionRunHook] | bool | None = None,
    ) -> Any:
        named: list[SessionRunHook] | None = [] if hooks is False else None
        if not isinstance(hooks, bool | None):
            with self._graph.as_default():
                named = self._hook_list.join(hooks, live)
        return run_watched(live, SessionRunArgs(fetches, feed_dict, options), run_metadata, named)

    def _check_open(self, method: str) -> None:
        if self._is_over:
            raise RuntimeError(f"{method} was called on a closed session: create a new one")

    def _call(self, act: Callable[[LiveSession], Any]) -> Any:
        if self._agreement is None:
            return self._session.call(act)
        return self._agreement.make_run(self._live(), partial(self._session.call, act))

    def _interrupt(self, number: int) -> None:
        self.request_stop(signal.Signals(number).name)
        self._ends_step = True
        if not self._tests_stop and not self._asks_first:
            self._asks_first, self._runs_left = True, 1  # the caller may be about to make one
        if number == signal.SIGINT:
            tell_stopping(b"" if self._is_over else b" after this step")

    @property
    def _finishes_step(self) -> bool:
        return self._ends_step and not self._is_over and self._session.is_within_step

    def _join(self, group: Group, says_chief: bool) -> None:
        agreement = Agreement(group, self._stop, self._hook_list, self._graph)
        agreement.start(says_chief)
        self._agreement, self._asks_first, self._ends_step = agreement, True, True
        dropped = PeerFailedError(group.rank, "its session was dropped without close")
        weakref.finalize(self, agreement.abandon, dropped)

    def _live(self) -> LiveSession:
        live = self._session.session
        assert live is not None, "in a group no session is replaced"
        return live

    def _take_run(self, hooks: Iterable[SessionRunHook] | bool | None) -> None:
        if (
            not self._asks_first
            or self._agreement is not None
            or self._iteration.is_open
            or self._finishes_step
            or (self._calls_hooks and hooks is not None and hooks is not True)
        ):
            return  # beside the loop, as in an evaluation
        if not self._runs_left:
            raise stopped(self.stop_reason)
        self._runs_left -= 1

    def _end_iteration(self) -> None:
        self._iteration.is_open = False
        self._session.call(lambda live: live.hooked.end_iteration())

    def _is_good_end(self, error: BaseException) -> bool:
        """Return whether a loop that ``error`` has ended is to be saved.

        After a request to stop, an input may fail because the signal has ended the workers of a
        loader too. After the loss of a session, steps since the last checkpoint may be missing.
        """
        if isinstance(error, good_ends()):
            return True
        raw = self._tf_sess()
        if raw is None or raw.input_error is not error or raw.engine.is_lost(error):
            return False
        if self._stop.reason is None or self._agreement is not None:  # others may be in this step
            return False
        _log.warning("after %s, an input has failed: %s", self._stop.reason, described(error))
        return True

    def _close(self, error: BaseException | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        with self._at_end:
            why = "close was called" if error is None else described(error)
            interrupts = caught(partial(self._session.finish, why))
            live, raw = self._session.session, self._tf_sess()
            failures = [] if live is None else caught(live.coord.raise_requested_exception)
            failures = [it for it in failures if not isinstance(it, good_ends())]
            errors = [it for it in (error, *interrupts, *failures) if it is not None][:1]
            if errors:
                errors = [self._blamed(errors[0], None if raw is None else raw.checkpoint)]
            elif self._agreement is not None:
                errors = caught(partial(self._agreement.finish, self.global_step, raw))
            reason = described(errors[0]) if errors else "close was called"
            self._stop.ask((live and live.stop_reason) or reason)
            step = None if raw is None else raw.global_step
            try:
                if raw is not None and not errors:
                    errors += self._hook_list.end(raw)
                else:
                    outcome = next(iter(errors), None) or RuntimeError("the session was lost")
                    self._hook_list.on_exception(raw, outcome)
            finally:
                closing = caught(self._session.close)
                errors += [it for it in closing if not isinstance(it, good_ends())]
                at_step = "" if step is None else f" at step {step}"
                _log.info("the session has ended%s: %s", at_step, self._stop.reason)
                errors += self._leave(errors)
            raise_first(errors, already=error)

    def _blamed(self, error: BaseException, checkpoint: str | None) -> BaseException:
        return error if self._agreement is None else self._agreement.blame(error, checkpoint)

    def _leave(self, errors: Sequence[BaseException]) -> list[BaseException]:
        return [] if self._agreement is None else self._agreement.close(next(iter(errors), None))


class SingularMonitoredSession(MonitoredSession):
    """A monitored session that is not replaced if it is lost.

    As that of ``tf.compat.v1.train``, with the arguments of ``ChiefSessionCreator`` and
    ``MonitoredSession``.
    """

    def __init__(
        self,
        hooks: Iterable[SessionRunHook] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | os.PathLike[str] | None = None,
    ) -> None:
        creator = ChiefSessionCreator(
            scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path
        )
        policy = RecoveryPolicy(failures=0)
        super().__init__(creator, hooks, stop_grace_period_secs, recovery=policy)

    def raw_session(self) -> RawSession | None:
        """Return the session without hooks; None after ``close``."""
        return self._tf_sess()
