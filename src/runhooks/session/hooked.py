"""``HookedSession``: a raw session whose runs carry the requests of hooks."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from runhooks import clock
from runhooks.contract import (
    PreparedRun,
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from runhooks.graph.base import StepPart
from runhooks.session.asking_run import AskedRun, AskingRun, WatchedRun, watch
from runhooks.session.hooks import NextDue, Placement, ScheduledHook, noting_hook
from runhooks.session.merge import RequestMerger
from runhooks.session.threads import Coordinator


def warm_up(
    raw: RawSession,
    merger: RequestMerger,
    caller: SessionRunArgs,
    hooks: Sequence[ScheduledHook],
    watching: Sequence[ScheduledHook],
) -> None:
    """Compile what runs of ``raw`` need.

    Args:
        raw: The session.
        merger: Merges the requests of its runs.
        caller: What their caller will ask for.
        hooks: All hooks that may take part in them.
        watching: Those that watch values in off-steps.
    """

    def compile_for(requests: Mapping[ScheduledHook, SessionRunArgs]) -> None:
        merged = merger.args(caller, requests) if requests else caller
        raw.warm_up(merged.fetches, merged.feed_dict)

    context = SessionRunContext(caller, raw, raw.global_step)
    requests = {hook: hook.warm_up(context) for hook in hooks}
    known = {
        hook: request
        for hook, request in requests.items()
        if request is not None and not merger.lacks_step(caller, hook, request)
    }
    # Those that ask in every run, whatever else is asked for.
    always = {hook: it for hook, it in known.items() if hook.always}
    compile_for(always)
    if watching:
        raw.warm_up(merger.with_watched(caller.fetches, watching)[0], caller.feed_dict)
    for hook in [it for it in known if it not in always]:
        with noting_hook(hook.name, "warm_up"):
            compile_for({**always, hook: known[hook]})


_log = logging.getLogger("runhooks")

#: Makes a named tuple of a tuple, in half the time of its constructor.
_new = tuple.__new__


class HookedSession:
    """Asks the hooks that are due, makes one run of all requests, and hands out the results.

    Attributes:
        runs: The number of runs it has made, not counting those that named their hooks.
        stride: How many steps the last run made, and so the next is expected to.
        due: When the next hook is due.
        within_step: Whether the last run was a part of a step, as when gradients accumulate. Hooks
            that go by steps or seconds, and signals, wait for the end of the step.
        repeat: A run that can be made again without ``run_with_hooks``: by ``run_again`` if hooks
            take part in it; None: there is none.
        saved_in: The number of the run, which the loop has fed, in which a checkpoint was saved
            since ``should_stop()`` was last called; None: there was none.
    """

    def __init__(self, raw: RawSession) -> None:
        self._raw = raw
        self.repeat: PreparedRun | None = None
        # What several threads change is changed inside it. A session that makes one run at a time
        # makes all of a run inside it, with its hooks.
        self._lock = threading.RLock()
        is_alone = raw.makes_one_run_at_a_time
        # `with lock` takes twice as long, and every run that asks does it.
        self._begin_turn: Callable[[], object] = self._lock.acquire if is_alone else _nothing
        self._end_turn: Callable[[], object] = self._lock.release if is_alone else _nothing
        self._last_asking: PreparedRun | None = None  # the run that was made for hooks last
        self.runs = 0
        self.saved_in: int | None = None
        self._warned_of_iteration = False
        self.stride = 1
        self.due = NextDue()
        self.within_step = False
        self._stop_reason: str | None = None
        self._by_id: dict[int, ScheduledHook] = {}
        self._hooks: list[ScheduledHook] = []  # those that are called without being named
        self._watching: list[ScheduledHook] = []
        self._merger = RequestMerger(raw)
        self._hook_secs: dict[str, float] | None = None
        # Run options and metadata for TensorFlow's hooks, which always get some; never written to.
        self._no_records = raw.new_records() or (None, None)

    def add(
        self,
        name: str,
        hook: SessionRunHook,
        *,
        always: bool,
        placement: Placement | None = None,
    ) -> None:
        """Add a hook: for every run if ``always``, otherwise for the runs that name it.

        ``placement``: on which of several ranks it is called.
        """
        added = ScheduledHook(hook, name, placement)
        self._expect_nothing()
        self._measure(added)
        if not added.takes_part:
            return
        self._by_id[id(hook)] = added
        if always:
            self._hooks.append(added)
        else:
            added.sleeps = False  # it is called where it is named
        if added.watched is not None and always:
            self._watching = [it for it in self._hooks if it.watched is not None]
            self._merger = RequestMerger(self._raw)  # it has merged fetches with fewer hooks

    def schedule(self) -> None:
        """Ask all hooks when they are next due; called once they are added."""
        self._ask_next_due([hook for hook in self._hooks if hook.sleeps])

    @property
    def stop_reason(self) -> str | None:
        """The name of the hook that has asked to stop, or None."""
        return self._stop_reason

    def withdraw_stop(self) -> None:
        """Forget that a hook has asked to stop: the ranks stop together, later."""
        self._stop_reason = None
        self._expect_nothing()

    def wake(self) -> None:
        """Call the hooks that are due in the next run; the time of the group has moved."""
        self.due.run = self.runs + 1
        self._expect_nothing()

    def run_with_hooks(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        hooks: Iterable[SessionRunHook] | None = None,
    ) -> Any:
        """Make one run of the raw session that carries the requests of the hooks.

        Args:
            fetches: As for ``Session.run``, like ``feed_dict``, ``options`` and ``run_metadata``.
            feed_dict: Values by tensor.
            options: Run options.
            run_metadata: Run metadata.
            hooks: Only these of the session's hooks take part; None: all that are due.

        Raises:
            RuntimeError: If a hook has asked to stop and ``hooks`` is not given.
        """
        raw = self._raw
        if type(feed_dict) is not dict and not isinstance(feed_dict, Mapping | None):
            return raw.run(fetches, feed_dict, options, run_metadata)  # it says what is wrong
        caller = SessionRunArgs(fetches, feed_dict, options)
        if hooks is not None:
            chosen = self._scheduled(hooks)
            if not chosen:
                return raw.run(fetches, feed_dict, options, run_metadata)
            self._begin_turn()
            try:
                return self.complete(self.ask(caller, chosen), None, run_metadata)
            finally:
                self._end_turn()
        if self._stop_reason is not None:
            raise RuntimeError(
                f"run was called after {self._stop_reason} asked to stop: check should_stop() "
                "before each run, or run without hooks with hooks=False"
            )
        self._begin_turn()
        try:
            step = raw.global_step or 0
            part = self._merger.step_part(caller)
            stride = self.stride if part is StepPart.WHOLE else 0
            if self.due.is_reached(step + stride, self.runs + 1, part):
                return self.complete(self.ask(caller, part=part), None, run_metadata)
            return self._run_off_step(caller, run_metadata, step, part)
        finally:
            self._end_turn()

    def _run_off_step(
        self, caller: SessionRunArgs, run_metadata: Any, step: int, part: StepPart
    ) -> Any:
        """Make a run in which no hook is called but those that watch a value."""
        raw, (fetches, feed_dict, options) = self._raw, caller
        watching: list[ScheduledHook] | None = None
        if self._watching:
            merged, watching = self._merger.with_watched(fetches, self._watching)
            try:
                results, run = self._made((merged, feed_dict, options), run_metadata)
            except (TypeError, ValueError) as error:
                self._merger.note_bad_watched(error, caller, watching)
                raise
            result = results[0]
        else:
            result, run = self._made(caller, run_metadata)
        with self._lock:
            self.runs += 1
            self._note_part(part)
        if watching is not None:
            watch(watching, raw.global_step, results, self._stop_for)
        stride = self.stride if part is StepPart.WHOLE else 0
        if raw.global_step != step + stride:
            self.note_steps(step, caller, run_metadata)
        self._expect_off_steps(fetches, watching, run)
        return result

    def _made(
        self, args: tuple[Any, Any, Any], run_metadata: Any
    ) -> tuple[Any, PreparedRun | None]:
        """Make a run of the raw session; return its result, and the run itself if there is one."""
        fetches, feed_dict, options = args
        if options is None and run_metadata is None:
            run = self._raw.find_run(fetches, feed_dict)
            if run is not None:
                return run.again(feed_dict), run
        return self._raw.run(fetches, feed_dict, options, run_metadata), None

    def note_steps(self, step: int, caller: SessionRunArgs, run_metadata: Any = None) -> None:
        """Take note of a run of an off-step that has not made as many steps as was expected.

        It delivers to the hooks that the run has made due.

        Args:
            step: The global step at which it began.
            caller: What its caller wanted.
            run_metadata: Its metadata.
        """
        made = (self._raw.global_step or 0) - step
        if made <= 0:
            return
        self.stride = made
        self._expect_nothing()
        if step + made >= self.due.step:
            context = SessionRunContext(caller, self._raw, step + made)
            woken = AskedRun(self._hooks, caller, step, context, StepPart.WHOLE)
            self._deliver(woken, step + made, caller.options, run_metadata)

    def warm_up(self, fetches: Any, feed_dict: Mapping[Any, Any] | None) -> None:
        """Compile what runs of ``fetches`` and the requests of the hooks need."""
        caller = SessionRunArgs(fetches, feed_dict)
        warm_up(self._raw, self._merger, caller, self._hooks, self._watching)

    def is_due(self) -> bool:
        """Return whether a hook takes part in the next run; for runs that are made elsewhere."""
        step = (self._raw.global_step or 0) + self.stride
        return bool(self._watching) or self.due.is_reached(step, self.runs + 1, StepPart.WHOLE)

    def ask(
        self,
        caller: SessionRunArgs,
        hooks: list[ScheduledHook] | None = None,
        part: StepPart | None = None,
    ) -> AskedRun:
        """Ask the hooks that are due what they want of a run that ``caller`` wants.

        Args:
            caller: What that is.
            hooks: Those that may take part; None: all but those that have to be named.
            part: What the run does to the global step; None: that is found out.
        """
        hooks = self._hooks if hooks is None else hooks
        step = self._raw.global_step
        part = part or self._merger.step_part(caller)
        next_step = (step or 0) + (self.stride if part is StepPart.WHOLE else 0)
        context = SessionRunContext(caller, self._raw, None if step is None else next_step)
        asked = AskedRun(hooks, caller, step, context, part)
        is_timed = self.due.time is not None or hooks is not self._hooks
        now = clock.monotonic() if is_timed else -math.inf
        for hook in hooks:
            if hook.always or hook.is_due(next_step, self.runs + 1, now, part):
                request = hook.before(context)
                if context.stop_requested:
                    self._note_stop(context, hook)
                asked.take(hook, request, self._merger)
        return asked

    def complete(
        self, asked: AskedRun, run: Callable[..., Any] | None = None, run_metadata: Any = None
    ) -> Any:
        """Make the run and hand out the results.

        Args:
            asked: What it is asked for.
            run: Makes it, and is called as ``RawSession.run`` is; None: the raw session does.
            run_metadata: As for ``RawSession.run``.
        """
        raw, caller, requests, metadata = self._raw, asked.caller, asked.requests, run_metadata
        merged = caller
        try:
            if requests:
                merged = self._merger.args(caller, requests)
            if merged.options is not None and metadata is None:
                # TensorFlow's hooks get the metadata that their options have produced.
                _, metadata = raw.new_records() or self._no_records
            made_run = None
            if run is not None:
                result = run(*merged, metadata)
            else:
                result, made_run = self._made(merged, metadata)
        except (TypeError, ValueError) as error:
            self._merger.note_bad_requests(error, caller, requests)
            raise
        hooks = asked.hooks
        step = raw.global_step or 0
        made = step - (asked.step or 0)
        with self._lock:
            self.repeat = None
            if made > 0:
                self.stride = made
            if hooks is self._hooks:
                self.runs += 1
            else:  # this run is not counted: the due runs of those that take part move instead
                for hook in hooks:
                    hook.run -= 1
            self._note_part(asked.part)
        result = asked.take_results(result)
        checkpoint = raw.checkpoint
        self._deliver(asked, step, merged.options, metadata)
        if caller.feed_dict and raw.checkpoint != checkpoint:
            self.saved_in = self.runs
        if hooks is self._hooks:
            self._expect_hooks(asked, made_run)
        return result

    def run_again(self, asking: AskingRun, fetches: Any, feed_dict: Any) -> Any:
        """Make a run in which hooks take part once more: no others are due.

        If one of them asks for something else than in the run before, ``complete`` merges that.

        Args:
            asking: The run.
            fetches: What its caller asks for, and ``asking`` is of.
            feed_dict: What ``asking`` is fed.
        """
        self._begin_turn()
        try:
            raw, run, step = self._raw, asking.run, self._raw.global_step
            caller = _new(SessionRunArgs, (fetches, feed_dict, None))
            stride = self.stride if asking.part is StepPart.WHOLE else 0
            context = SessionRunContext(caller, raw, None if step is None else step + stride)
            requests, are_same = asking.ask(context, self._note_stop)
            if not are_same or run.off_steps <= 0:
                # They ask for something else, or somebody has changed variables.
                asked = AskedRun(self._hooks, caller, step, context, asking.part)
                asking.hand_over(requests, asked, self._merger)
                return self.complete(asked)
            try:
                result = run.again(feed_dict)
            except (TypeError, ValueError) as error:
                self._merger.note_bad_requests(error, caller, asking.requests)
                raise
            self.runs += 1
            asking.answer(context, result, self._no_records, self._note_stop)
            if asking.sleepers:
                with self._lock:
                    if not asking.go_on(self.runs):
                        self._find_next_due()
            return result[0] if asking.requests else result
        finally:
            self._end_turn()

    def end_iteration(self) -> None:
        """Warn, once, of a checkpoint that was saved in the middle of an iteration of the loop."""
        saved_in, self.saved_in = self.saved_in, None
        if saved_in is None or saved_in == self.runs or self._warned_of_iteration:
            return
        self._warned_of_iteration = True
        _log.warning(
            "%s was saved in the middle of an iteration: the loop feeds several runs before it "
            "calls should_stop() again. A loop that resumes there begins the iteration anew, and "
            "its result differs, unless SavedStateHook saves all that the iteration goes by. Save "
            "after whole iterations, with save_checkpoint_steps",
            self._raw.checkpoint,
        )

    def count_run(self, step: int) -> None:
        """Count a run that was made elsewhere while no hook was due, and has led from ``step``."""
        self.runs += 1
        if self._raw.global_step != step + self.stride:
            self.note_steps(step, SessionRunArgs(None))

    def deliver_between_runs(self) -> None:
        """Call ``after_run``, without a run, of hooks that have slept until somebody else acts.

        As those that act on the evaluations of a framework do.
        """
        step = self._raw.global_step or 0
        asleep = [it for it in self._hooks if it.step == it.time == it.run == math.inf]
        self._ask_next_due(asleep)
        caller = SessionRunArgs(None)
        context = SessionRunContext(caller, self._raw, step)
        woken = [hook for hook in asleep if step >= hook.step]
        self._deliver(AskedRun(woken, caller, step, context, StepPart.WHOLE), step, None, None)

    def _note_part(self, part: StepPart) -> None:
        if part is not StepPart.NONE:
            self.within_step = part is StepPart.PART

    def _deliver(self, asked: AskedRun, step: int, options: Any, run_metadata: Any) -> None:
        # A run may take the step further than expected: a hook that this wakes gets after_run.
        no_options, no_metadata = self._no_records
        options = no_options if options is None else options
        run_metadata = no_metadata if run_metadata is None else run_metadata
        hooks, answers, context, sleepers = asked.hooks, asked.answers, asked.context, []
        for hook in hooks:
            if hook in answers or (
                asked.part is not StepPart.PART
                and step >= hook.step
                and hook.watched is None
                and hook not in asked.postponed
            ):
                values = answers.get(hook), options, run_metadata
                hook.after(context, _new(SessionRunValues, values))
                if context.stop_requested:
                    self._note_stop(context, hook)
                if hook.sleeps:
                    sleepers.append(hook)
        if sleepers or hooks is not self._hooks:
            self._ask_next_due(sleepers)

    def _ask_next_due(self, hooks: Iterable[ScheduledHook]) -> None:
        with self._lock:
            for hook in hooks:
                hook.ask_next_due(self.runs)
            self._find_next_due()

    def _find_next_due(self) -> None:
        if self.due.find(hook for hook in self._hooks if hook.watched is None):
            self.wake()  # on all ranks alike, without a decision
        self._expect_nothing()

    def _expect_off_steps(
        self, fetches: Any, watching: list[ScheduledHook] | None, run: PreparedRun | None
    ) -> None:
        """Let the off-step ``run`` be made again until a hook is due."""
        with self._lock:
            self._expect_nothing()
            if run is not None and self._foresees(run):
                if watching is not None:
                    turn = self._begin_turn, self._end_turn
                    run = WatchedRun(fetches, run, self._raw, watching, self._stop_for, turn)
                self.repeat = run

    def _expect_hooks(self, asked: AskedRun, run: PreparedRun | None) -> None:
        """Let ``run``, which the hooks of every run took part in, be made again until one is due.

        Not before it was made twice in a row: a loop may make others in turn.
        """
        with self._lock:
            last, self._last_asking = self._last_asking, run
            if run is not None and run is last:
                if asked.recurs() and self._foresees(run):
                    self.repeat = AskingRun(asked, run)
                else:
                    self._last_asking = None  # it is not tried in every run

    def _foresees(self, run: PreparedRun) -> bool:
        """Tell ``run`` how often it can be made before a hook is due; return whether it can be."""
        if self._stop_reason is not None:
            return False
        if run.steps != self.stride and (run.steps or self.due.step != math.inf):
            return False  # hooks have made steps too, or it makes none
        step = self._raw.global_step or 0
        run.foresee(self.due.runs_until(step, self.stride, self.runs))
        return run.off_steps > 0

    def _expect_nothing(self) -> None:
        self.repeat = None

    def _note_stop(self, context: SessionRunContext, hook: ScheduledHook) -> None:
        if self._stop_reason is None:
            reason = context.stop_reason
            self._stop_for(f"{hook.name} ({reason})" if reason else hook.name)

    def _stop_for(self, reason: str) -> None:
        self._stop_reason = self._stop_reason or reason
        self._expect_nothing()

    def _measure(self, added: ScheduledHook) -> None:
        secs = getattr(added.hook, "hook_secs", None)  # a foreign hook may lack it
        if secs is not None:  # this hook measures all others, those before it too
            self._hook_secs = secs
            for hook in (*self._by_id.values(), added):
                hook.measure(secs)
            self._watching = []  # hooks that are measured are called in every run instead
        elif self._hook_secs is not None:
            added.measure(self._hook_secs)

    def _scheduled(self, hooks: Iterable[SessionRunHook]) -> list[ScheduledHook]:
        return [self._by_id[id(hook)] for hook in hooks if id(hook) in self._by_id]


def _nothing() -> None:
    pass


class CoordinatedCreator(NamedTuple):
    """The raw session and its coordinator, as TensorFlow's session has them; None after its end."""

    tf_sess: RawSession | None
    coord: Coordinator | None


@dataclass
class LiveSession:
    """A raw session in use, with its hooks and the coordinator of the threads beside it."""

    raw: RawSession
    coord: Coordinator
    hooked: HookedSession
    #: The hook that asked the coordinator to stop while the session opened, or None.
    stopped_by: str | None = None

    @property
    def as_created(self) -> CoordinatedCreator:
        """What TensorFlow's session has in its place."""
        return CoordinatedCreator(self.raw, self.coord)

    @property
    def stop_reason(self) -> str | None:
        """The hook that has asked to stop, or the thread that has and why; None: nobody has."""
        return self.hooked.stop_reason or self.stopped_by or self.coord.stop_reason

    def close(self, grace_secs: float) -> None:
        """Stop the threads, wait for them up to ``grace_secs``, and close the raw session."""
        self.coord.request_stop()
        try:
            self.coord.join(stop_grace_period_secs=grace_secs, ignore_live_threads=True)
        finally:
            self.raw.close()
