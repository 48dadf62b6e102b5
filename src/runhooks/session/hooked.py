"""``HookedSession``: a raw session whose runs carry the requests of hooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from runhooks import clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from runhooks.errors import add_note
from runhooks.session.merge import RequestMerger
from runhooks.session.placement import Placement
from runhooks.session.scheduled_hook import ScheduledHook, hook_note, noting_hook


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
    """Asks the hooks that are due, makes one run of all requests, and hands out the results."""

    def __init__(self, raw: RawSession) -> None:
        self._raw = raw
        self._runs = 0
        self._stride = 1  # steps that the last run made, and so the next is expected to
        self._stop_reason: str | None = None
        self._by_id: dict[int, ScheduledHook] = {}
        self._hooks: list[ScheduledHook] = []  # those that are called without being named
        self._watching: list[ScheduledHook] = []
        self._merger = RequestMerger(raw)
        self._hook_secs: dict[str, float] | None = None
        self._due_step = self._due_time = self._due_run = math.inf
        self._some_due_by_time = False
        self._shared_due_time = math.inf
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
    def runs(self) -> int:
        """The number of runs it has made, not counting those that named their hooks."""
        return self._runs

    @property
    def stop_reason(self) -> str | None:
        """The name of the hook that has asked to stop, or None."""
        return self._stop_reason

    @property
    def shared_due_time(self) -> float:
        """The time at which a hook that lives by the time of the group is due."""
        return self._shared_due_time

    def withdraw_stop(self) -> None:
        """Forget that a hook has asked to stop: the ranks stop together, later."""
        self._stop_reason = None

    def wake(self) -> None:
        """Call the hooks that are due in the next run; the time of the group has moved."""
        self._due_run = self._runs + 1

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
        if (
            step + self._stride >= self._due_step
            or self._runs + 1 >= self._due_run
            or (self._some_due_by_time and clock.monotonic() >= self._due_time)
        ):
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
        self._runs += 1
        made = (raw.global_step or 0) - step
        if made != self._stride and made > 0:
            self._stride = made
        if watching:
            self._watch(watching, step + made, watched)
        if step + made >= self._due_step:
            caller = SessionRunArgs(fetches, feed_dict, options)
            context = SessionRunContext(caller, raw, step + made)
            self._deliver(self._hooks, {}, context, SessionRunValues(None, options, run_metadata))
        return result

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
        return (
            bool(self._watching)
            or (self._raw.global_step or 0) + self._stride >= self._due_step
            or self._runs + 1 >= self._due_run
            or (self._some_due_by_time and clock.monotonic() >= self._due_time)
        )

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
        self._stride = made if made > 0 else self._stride
        if hooks is self._hooks:
            self._runs += 1
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
        self._runs += 1
        made = (self._raw.global_step or 0) - step
        if made != self._stride and made > 0:
            self._stride = made
        if step + made >= self._due_step:
            context = SessionRunContext(SessionRunArgs(None), self._raw, step + made)
            self._deliver(self._hooks, {}, context, self._values(None, None))

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
        next_step = (step or 0) + self._stride
        context = SessionRunContext(caller, self._raw, None if step is None else next_step)
        answers: dict[ScheduledHook, Any] = {}
        requests: dict[ScheduledHook, SessionRunArgs] = {}
        postponed: set[ScheduledHook] = set()  # still due: they are asked again before the next run
        is_timed = self._some_due_by_time or hooks is not self._hooks
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
            or self._runs + 1 >= hook.run
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

    def _watch(self, watching: list[ScheduledHook], step: int, watched: list[Any]) -> None:
        try:
            for hook, value in zip(watching, watched, strict=True):
                if hook.hook.watch(step, value) and self._stop_reason is None:
                    self._stop_reason = hook.name
        except Exception as error:
            add_note(error, hook_note(hook.name, "watch"))
            raise

    def _ask_next_due(self, hooks: Iterable[ScheduledHook]) -> None:
        for hook in hooks:
            hook.ask_next_due(self._runs)
        self._find_next_due()

    def _find_next_due(self) -> None:
        step = time = run = math.inf
        shared = []
        for hook in self._hooks:
            if hook.watched is None:
                step, run = min(step, hook.step), min(run, hook.run)
                if hook.shared_time is None:
                    time = min(time, hook.time)
                else:
                    shared.append(hook)
        self._due_step, self._due_time, self._due_run = step, time, run
        self._some_due_by_time = time < math.inf
        if shared:
            self._find_shared_due(shared)

    def _find_shared_due(self, hooks: list[ScheduledHook]) -> None:
        due = {hook.time for hook in hooks if hook.shared_time and hook.shared_time.now < hook.time}
        self._shared_due_time = min(due, default=math.inf)
        if any(hook.shared_time and hook.shared_time.now >= hook.time for hook in hooks):
            self.wake()  # on all ranks alike, without a decision

    def _note_stop(self, context: SessionRunContext, hook: ScheduledHook) -> None:
        if self._stop_reason is None:
            reason = context.stop_reason
            self._stop_reason = f"{hook.name} ({reason})" if reason else hook.name

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
