"""``HookedSession``: a raw session whose runs carry the requests of hooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
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
from runhooks.errors import add_note
from runhooks.session.merge import RequestMerger
from runhooks.session.next_due import NextDue
from runhooks.session.placement import Placement
from runhooks.session.scheduled_hook import ScheduledHook, hook_note, noting_hook
from runhooks.session.watched_run import WatchedRun


class AskedRun(NamedTuple):
    """A run to come: what its caller wants, and what the hooks that take part have asked for."""

    hooks: list[ScheduledHook]
    caller: SessionRunArgs
    step: int | None
    context: SessionRunContext
    requests: dict[ScheduledHook, SessionRunArgs]
    answers: dict[ScheduledHook, Any]
    postponed: set[ScheduledHook]


class HookedSession:
    """Asks the hooks that are due, makes one run of all requests, and hands out the results.

    Attributes:
        runs: The number of runs it has made, not counting those that named their hooks.
        stride: How many steps the last run made, and so the next is expected to.
        due: When the next hook is due.
        repeat: The off-step that was made last, if it can be made again without ``run_with_hooks``.
    """

    def __init__(self, raw: RawSession) -> None:
        self._raw = raw
        self.repeat: PreparedRun | None = None
        self.runs = 0
        self.stride = 1
        self.due = NextDue()
        self._stop_reason: str | None = None
        self._by_id: dict[int, ScheduledHook] = {}
        self._hooks: list[ScheduledHook] = []  # those that are called without being named
        self._watching: list[ScheduledHook] = []
        self._merger = RequestMerger(raw)
        self._hook_secs: dict[str, float] | None = None
        # Run options and metadata for TensorFlow's hooks, which always get some; never written to.
        self._empty_records = raw.new_records()

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
        if hooks is not None:
            chosen = self._scheduled(hooks)
            if not chosen:
                return raw.run(fetches, feed_dict, options, run_metadata)
            return self._run_with(chosen, fetches, feed_dict, options, run_metadata)
        if self._stop_reason is not None:
            raise RuntimeError(
                f"run was called after {self._stop_reason} asked to stop: check should_stop() "
                "before each run, or run without hooks with hooks=False"
            )
        step = raw.global_step or 0
        if self.due.is_reached(step + self.stride, self.runs + 1):
            return self._run_with(self._hooks, fetches, feed_dict, options, run_metadata)
        # An off-step: no hook is called but those that watch a value.
        watching = self._watching
        if watching:
            merged, watching = self._merger.with_watched(fetches, watching)
            try:
                result, *watched = raw.run(merged, feed_dict, options, run_metadata)
            except (TypeError, ValueError) as error:
                self._merger.note_bad_watched(error, SessionRunArgs(fetches, feed_dict), watching)
                raise
        else:
            result = raw.run(fetches, feed_dict, options, run_metadata)
        self.runs += 1
        if watching:
            self._watch(watching, watched)
        if raw.global_step != step + self.stride:
            self.note_steps(step, SessionRunArgs(fetches, feed_dict, options), run_metadata)
        self._expect_off_steps(fetches, watching)
        return result

    def note_steps(self, step: int, caller: SessionRunArgs, run_metadata: Any = None) -> None:
        """Take note of a run of an off-step that has not made as many steps as was expected.

        It delivers to the hooks that the run has made due.

        Args:
            step: The global step at which it began.
            caller: What its caller wanted.
            run_metadata: Its metadata.
        """
        made = (self._raw.global_step or 0) - step
        if made > 0:
            self.stride = made
            self._expect_nothing()
        if step + made >= self.due.step:
            context = SessionRunContext(caller, self._raw, step + made)
            self._deliver(self._hooks, {}, context, self._values(caller.options, run_metadata))

    def warm_up(self, fetches: Any, feed_dict: Mapping[Any, Any] | None) -> None:
        """Compile what runs of ``fetches`` need, and what the hooks will ask for in them."""
        caller = SessionRunArgs(fetches, feed_dict)
        context = SessionRunContext(caller, self._raw, self._raw.global_step)
        requests = {hook: hook.warm_up(context) for hook in self._hooks}
        known = {
            hook: request
            for hook, request in requests.items()
            if request is not None and not self._merger.lacks_step(caller, hook, request)
        }
        # Those that ask in every run, whatever else is asked for.
        always = {hook: it for hook, it in known.items() if hook.always}
        self._warm_up_for(caller, always)
        if self._watching:
            self._raw.warm_up(self._merger.with_watched(fetches, self._watching)[0], feed_dict)
        for hook in [it for it in known if it not in always]:
            with noting_hook(hook.name, "warm_up"):
                self._warm_up_for(caller, {**always, hook: known[hook]})

    def _warm_up_for(
        self, caller: SessionRunArgs, requests: Mapping[ScheduledHook, SessionRunArgs]
    ) -> None:
        merged = self._merger.args(caller, requests) if requests else caller
        self._raw.warm_up(merged.fetches, merged.feed_dict)

    def is_due(self) -> bool:
        """Return whether a hook takes part in the next run; for runs that are made elsewhere."""
        step = (self._raw.global_step or 0) + self.stride
        return bool(self._watching) or self.due.is_reached(step, self.runs + 1)

    def ask(self, caller: SessionRunArgs) -> AskedRun:
        """Ask the hooks that are due what they want of a run that ``caller`` wants."""
        return self._ask(self._hooks, caller)

    def complete(self, asked: AskedRun, run: Callable[..., Any], run_metadata: Any = None) -> Any:
        """Make the run with ``run``, called as ``RawSession.run`` is, and hand out the results."""
        caller, requests, metadata = asked.caller, asked.requests, run_metadata
        merged = caller
        try:
            if requests:
                merged = self._merger.args(caller, requests)
            if merged.options is not None and run_metadata is None:
                metadata = self._new_metadata()
            result = run(*merged, metadata)
        except (TypeError, ValueError) as error:
            self._merger.note_bad_requests(error, caller, requests)
            raise
        hooks, answers, postponed = asked.hooks, asked.answers, asked.postponed
        made = (self._raw.global_step or 0) - (asked.step or 0)
        if made > 0:
            self.stride = made
            self._expect_nothing()
        if hooks is self._hooks:
            self.runs += 1
        else:  # this run is not counted: the due runs of those that take part move instead
            for hook in hooks:
                hook.run -= 1
        if requests:
            result, *results = result
            for hook, got in zip(requests, results, strict=True):
                answers[hook] = None if requests[hook].fetches is None else got
        values = self._values(merged.options, metadata)
        taking_part = [it for it in hooks if it not in postponed] if postponed else hooks
        self._deliver(taking_part, answers, asked.context, values)
        return result

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
        context = SessionRunContext(SessionRunArgs(None), self._raw, step)
        woken = [hook for hook in asleep if step >= hook.step]
        self._deliver(woken, {}, context, self._values(None, None))

    def _run_with(
        self,
        hooks: list[ScheduledHook],
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None,
        options: Any,
        run_metadata: Any,
    ) -> Any:
        asked = self._ask(hooks, SessionRunArgs(fetches, feed_dict, options))
        return self.complete(asked, self._raw.run, run_metadata)

    def _ask(self, hooks: list[ScheduledHook], caller: SessionRunArgs) -> AskedRun:
        step = self._raw.global_step
        next_step = (step or 0) + self.stride
        context = SessionRunContext(caller, self._raw, None if step is None else next_step)
        answers: dict[ScheduledHook, Any] = {}
        requests: dict[ScheduledHook, SessionRunArgs] = {}
        postponed: set[ScheduledHook] = set()  # still due: they are asked again before the next run
        is_timed = self.due.time is not None or hooks is not self._hooks
        now = clock.monotonic() if is_timed else -math.inf
        for hook in hooks:
            if not (hook.always or self._is_due(hook, next_step, now)):
                continue
            request = hook.before(context)
            if context.stop_requested:
                self._note_stop(context, hook)
            if request is not None:
                if hook.is_lone:
                    self._merger.check_lone(hook, request)
                if self._merger.lacks_step(caller, hook, request):
                    postponed.add(hook)
                    continue
                requests[hook] = request
            answers[hook] = None
        return AskedRun(hooks, caller, step, context, requests, answers, postponed)

    def _is_due(self, hook: ScheduledHook, next_step: int, now: float) -> bool:
        return (
            hook.watched is not None
            or next_step >= hook.step
            or self.runs + 1 >= hook.run
            or (now if hook.shared_time is None else hook.shared_time.now) >= hook.time
        )

    def _new_metadata(self) -> Any:
        # TensorFlow's hooks get the metadata that their options have produced.
        records = self._raw.new_records()
        return None if records is None else records[1]

    def _values(self, options: Any, run_metadata: Any) -> SessionRunValues:
        if self._empty_records is not None:
            no_options, no_metadata = self._empty_records
            options = no_options if options is None else options
            run_metadata = no_metadata if run_metadata is None else run_metadata
        return SessionRunValues(None, options, run_metadata)

    def _deliver(
        self,
        hooks: list[ScheduledHook],
        answers: Mapping[ScheduledHook, Any],
        context: SessionRunContext,
        values: SessionRunValues,
    ) -> None:
        # A run may take the step further than expected: a hook that this wakes gets after_run.
        step = self._raw.global_step or 0
        _, options, run_metadata = values
        sleepers = []
        for hook in hooks:
            if hook in answers or (hook.watched is None and step >= hook.step):
                got = answers.get(hook)
                hook.after(context, SessionRunValues(got, options, run_metadata))
                if context.stop_requested:
                    self._note_stop(context, hook)
                if hook.sleeps:
                    sleepers.append(hook)
        if sleepers or hooks is not self._hooks:
            self._ask_next_due(sleepers)

    def _watch(self, watching: list[ScheduledHook], watched: list[Any]) -> None:
        step = self._raw.global_step or 0
        try:
            for hook, value in zip(watching, watched):  # noqa: B905 - one for each
                if hook.hook.watch(step, value):
                    self._stop_for(hook.name)
        except Exception as error:
            add_note(error, hook_note(hook.name, "watch"))
            raise

    def _ask_next_due(self, hooks: Iterable[ScheduledHook]) -> None:
        for hook in hooks:
            hook.ask_next_due(self.runs)
        self._find_next_due()

    def _find_next_due(self) -> None:
        if self.due.find(hook for hook in self._hooks if hook.watched is None):
            self.wake()  # on all ranks alike, without a decision
        self._expect_nothing()

    def _expect_off_steps(self, fetches: Any, watching: list[ScheduledHook]) -> None:
        """Let the run that was made be made again until a hook is due."""
        run, due = self._raw.prepared, self.due
        self.repeat = None
        if run is None or not self._raw.repeats_runs or self._stop_reason:
            return
        if run.steps == self.stride or due.step == math.inf:
            step = self._raw.global_step or 0
            if watching:
                run = WatchedRun(fetches, run, partial(self._watch, watching))
            run.foresee(max(0, due.runs_until(step, self.stride, self.runs)))
            self.repeat = run

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
