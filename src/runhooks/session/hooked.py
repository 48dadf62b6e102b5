"""``HookedSession``: lets hooks ride along with the runs of a raw session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from runhooks import clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from runhooks.session.merge import Merger, note_bad_requests
from runhooks.session.rider import Rider, origin


class HookedSession:
    """Asks the hooks that are due, makes one run of all that is asked, hands out the results."""

    def __init__(self, raw: RawSession) -> None:
        self._raw = raw
        self._runs = 0
        self._stride = 1  # steps that the last run made, and so the next is expected to
        self._stop_reason: str | None = None
        self._riders: dict[int, Rider] = {}
        self._riding: list[Rider] = []
        self._watching: list[Rider] = []
        self._merger = Merger(raw)
        self._hook_secs: dict[str, float] | None = None
        self._due_step = self._due_time = self._due_run = math.inf
        self._timed = False
        #: Makes the run options and run metadata that TensorFlow's hooks always get; else None.
        self._new_records = getattr(raw, "new_records", None)
        #: Those of runs that have none; nobody writes to them.
        self._empty_records = self._new_records and self._new_records()

    def add(self, name: str, hook: SessionRunHook, *, always: bool) -> None:
        """Let ``hook`` ride along: in every run if ``always``, else where ``run`` is given it."""
        rider = Rider(hook, name)
        self._measure(rider)
        if not rider.rides:
            return
        self._riders[id(hook)] = rider
        if always:
            self._riding.append(rider)
        else:
            rider.sleeps = False  # it is called where it is named
        self._watching = [rider for rider in self._riding if rider.watched is not None]
        self._merger = Merger(self._raw)
        self._ask([rider] if rider.sleeps else [])

    @property
    def runs(self) -> int:
        """How many runs it has made, those left out that named their hooks."""
        return self._runs

    @property
    def stop_reason(self) -> str | None:
        """The name of the hook that has asked to stop, or None."""
        return self._stop_reason

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        hooks: Iterable[SessionRunHook] | None = None,
    ) -> Any:
        """One run of the raw session, with what the hooks ask for in it.

        ``hooks``: only these of the session's hooks ride along. Raises RuntimeError if a hook has
        asked to stop before and ``hooks`` is not given, or if a tensor is to be fed twice; and what
        a hook or the run raises.
        """
        raw = self._raw
        if hooks is not None:
            chosen = self._chosen(hooks)
            if not chosen:
                return raw.run(fetches, feed_dict, options, run_metadata)
            return self._run_with(chosen, fetches, feed_dict, options, run_metadata)
        if self._stop_reason is not None:
            raise RuntimeError(
                f"run was called after {self._stop_reason} had asked to stop: test should_stop() "
                "before each run, or leave the hooks out with hooks=False"
            )
        step = raw.global_step or 0
        if (
            step + self._stride >= self._due_step
            or self._runs + 1 >= self._due_run
            or (self._timed and clock.monotonic() >= self._due_time)
        ):
            return self._run_with(self._riding, fetches, feed_dict, options, run_metadata)
        # An off-step: nothing is made for hooks, and none is called but those that watch.
        watching = self._watching
        if watching:
            joint, watching = self._merger.with_watched(fetches, watching)
            result, *watched = raw.run(joint, feed_dict, options, run_metadata)
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
            self._deliver(self._riding, {}, context, SessionRunValues(None, options, run_metadata))
        return result

    def _run_with(
        self,
        riding: list[Rider],
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None,
        options: Any,
        run_metadata: Any,
    ) -> Any:
        caller = SessionRunArgs(fetches, feed_dict, options)
        step = self._raw.global_step
        next_step = (step or 0) + self._stride
        context = SessionRunContext(caller, self._raw, None if step is None else next_step)
        answers: dict[Rider, Any] = {}
        requests: dict[Rider, SessionRunArgs] = {}
        put_off: set[Rider] = set()  # they stay due, and are asked again before the next run
        for rider in self._due(riding, next_step):
            request = rider.before(context)
            self._note_stop(context, rider)
            if request is not None:
                if self._merger.starts_step(caller, rider, request):
                    put_off.add(rider)
                    continue
                requests[rider] = request
            answers[rider] = None
        joint = caller
        try:
            if requests:
                joint = self._merger.args(caller, requests)
            run_metadata = self._metadata(joint.options, run_metadata)
            result = self._raw.run(*joint, run_metadata)
        except (TypeError, ValueError) as error:
            note_bad_requests(error, self._raw.graph, caller, requests)
            raise
        made = (self._raw.global_step or 0) - (step or 0)
        self._stride = made if made > 0 else self._stride
        if riding is self._riding:
            self._runs += 1
        else:  # only those that took part have come nearer to their run
            for rider in riding:
                rider.run -= 1
        if requests:
            result, *results = result
            for rider, got in zip(requests, results, strict=True):
                answers[rider] = None if requests[rider].fetches is None else got
        values = self._values(joint.options, run_metadata)
        taking_part = [it for it in riding if it not in put_off] if put_off else riding
        self._deliver(taking_part, answers, context, values)
        return result

    def _due(self, riding: list[Rider], next_step: int) -> list[Rider]:
        run, now = self._runs + 1, clock.monotonic()
        return [
            rider
            for rider in riding
            if rider.watched is not None
            or next_step >= rider.step
            or run >= rider.run
            or now >= rider.time
        ]

    def _metadata(self, options: Any, given: Any) -> Any:
        # TensorFlow's hooks get what their options have made of a run.
        if options is None or given is not None or self._new_records is None:
            return given
        return self._new_records()[1]

    def _values(self, options: Any, run_metadata: Any) -> SessionRunValues:
        if self._empty_records is not None:
            no_options, no_metadata = self._empty_records
            options = no_options if options is None else options
            run_metadata = no_metadata if run_metadata is None else run_metadata
        return SessionRunValues(None, options, run_metadata)

    def _deliver(
        self,
        riding: list[Rider],
        answers: Mapping[Rider, Any],
        context: SessionRunContext,
        values: SessionRunValues,
    ) -> None:
        # A run may take the step further than foreseen: whoever that wakes still gets after_run.
        step = self._raw.global_step or 0
        called = [rider for rider in riding if rider in answers or step >= rider.step]
        _, options, run_metadata = values
        for rider in called:
            rider.after(context, SessionRunValues(answers.get(rider), options, run_metadata))
            self._note_stop(context, rider)
        sleepers = [rider for rider in called if rider.sleeps]
        if sleepers or riding is not self._riding:
            self._ask(sleepers)

    def _watch(self, watching: list[Rider], step: int, watched: list[Any]) -> None:
        try:
            for rider, value in zip(watching, watched, strict=True):
                if rider.hook.watch(step, value) and self._stop_reason is None:
                    self._stop_reason = rider.name
        except Exception as error:
            error.add_note(origin(rider.name, "watch"))
            raise

    def _ask(self, riders: Iterable[Rider]) -> None:
        for rider in riders:
            rider.ask(self._runs)
        self._find_next_due()

    def _note_stop(self, context: SessionRunContext, rider: Rider) -> None:
        if context.stop_requested and self._stop_reason is None:
            self._stop_reason = rider.name

    def _find_next_due(self) -> None:
        others = [rider for rider in self._riding if rider.watched is None]
        self._due_step = min([rider.step for rider in others], default=math.inf)
        self._due_time = min([rider.time for rider in others], default=math.inf)
        self._timed = self._due_time < math.inf
        self._due_run = min([rider.run for rider in others], default=math.inf)

    def _measure(self, rider: Rider) -> None:
        secs = getattr(rider.hook, "hook_secs", None)
        if secs is not None:  # this hook measures all others, those before it too
            self._hook_secs = secs
            for other in (*self._riders.values(), rider):
                other.measure(secs)
        elif self._hook_secs is not None:
            rider.measure(self._hook_secs)

    def _chosen(self, hooks: Iterable[SessionRunHook]) -> list[Rider]:
        return [self._riders[id(hook)] for hook in hooks if id(hook) in self._riders]
