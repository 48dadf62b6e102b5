"""``HookedSession``: a raw session whose runs carry the requests of hooks."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from typing import Any, NamedTuple

from runhooks import clock
from runhooks.contract import (
    PreparedRun,
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
)
from runhooks.errors import good_ends
from runhooks.graph.base import StepPart
from runhooks.graph.engine import BoundedCache
from runhooks.graph.nest import structure_key
from runhooks.session.scheduled_hook import NextDue, RankPlacement, ScheduledHook, note_hook
from runhooks.session.shared_epochs import SharedEpochs
from runhooks.session.threads import Coordinator
from runhooks.session.turn import (
    Answering,
    Asking,
    CallerTurns,
    Hooks,
    Request,
    RequestMerger,
    Turn,
    answer,
    new_tuple,
)

_log = logging.getLogger("runhooks")


class Asked(NamedTuple):
    """A run to come, whose hooks were asked; ``context`` is None in an off-step."""

    turn: Turn
    caller: SessionRunArgs
    requests: Sequence[Request]
    context: SessionRunContext | None
    step: int | None
    hooks: Sequence[ScheduledHook]


class Held(NamedTuple):
    """A result for a hook that acts at the end of the iteration."""

    value: Any
    records: tuple[Any, Any] | None
    epochs: float | Fraction


_NOTHING_HELD = Held(None, None, 0)

ANOTHER = object()


class Iteration:
    """Several runs, between which nothing is saved or stopped."""

    is_open = False


class HookedSession:
    """Asks the hooks that are due, makes one run of all requests, and hands out the results.

    Attributes:
        runs: The number of runs made, but for those that named their hooks.
        stride: The steps of the last run, and expected of the next.
        data_end: Why the data have no further element, or None. Another run is not refused.
        within_step: Whether the last run was a part of a step.
        repeat: The turn that ``again`` can make, or None.
        saved_in: The last run that was fed and saved a checkpoint since ``should_stop()``, or None.
    """

    def __init__(self, raw: RawSession, iteration: Iteration | None = None) -> None:
        self._raw = raw
        self._iteration = iteration or Iteration()
        self._caller = SessionRunArgs(None)  # of the last run but those of ``again``
        self.repeat: Turn | None = None
        # Held all through a run where runs are made one at a time.
        self._lock = threading.RLock()
        self._is_alone = raw.makes_one_run_at_a_time
        self._one_at_a_time: AbstractContextManager[Any] = (
            self._lock if self._is_alone else nullcontext()
        )
        self.runs = 0
        self.saved_in: int | None = None
        self._warned_of_iteration = False
        self.stride = 1
        self.due = NextDue()
        self.within_step = False
        self.stop_reason: str | None = None
        self.data_end: str | None = None
        self._epochs = raw.epochs
        self.shared_epochs: SharedEpochs | None = None
        self._by_id: dict[int, ScheduledHook] = {}
        self._hooks: list[ScheduledHook] = []  # but for those that have to be named
        self._watching: list[ScheduledHook] = []
        self._held_back: dict[ScheduledHook, Held] = {}
        self._merger = RequestMerger(raw)
        self._turns: BoundedCache[Any, CallerTurns] = BoundedCache()
        self._hook_secs: dict[str, float] | None = None
        # TensorFlow's hooks always get some.
        self._no_records = raw.new_records() or (None, None)

    def add(
        self, name: str, hook: SessionRunHook, placement: RankPlacement | None, *, always: bool
    ) -> None:
        added = ScheduledHook(hook, name, placement)
        self._measure(added)
        self._turns.clear()  # their turns were bound to fewer hooks
        self.repeat = None
        if added.before_run is None and added.after_run is None:
            return
        self._by_id[id(hook)] = added
        if not always:
            added.sleeps = False  # it is called where it is named
            return
        self._hooks.append(added)
        if added.watched is not None:
            self._watching = [*self._watching, added]

    def schedule(self) -> None:
        self._ask_next_due([hook for hook in self._hooks if hook.sleeps], find=True)

    @property
    def is_within(self) -> bool:
        return self.within_step or self._iteration.is_open

    def check_stop(self, method: str) -> None:
        if self.stop_reason is not None:
            raise RuntimeError(
                f"{method} was called after {self.stop_reason} asked to stop: check should_stop() "
                "before each run or iteration, or run with hooks=False"
            )

    def begin_iteration(self) -> None:
        # After a block that has raised, these are still to act.
        held = self._held_back.items()
        self._held_back = {hook: it for hook, it in held if it is not _NOTHING_HELD}
        self.repeat = None

    def end_iteration(self) -> None:
        step = self._raw.global_step or 0
        epochs = self._epochs_done(step)
        moment = step, self.runs, clock.monotonic(), StepPart.WHOLE, epochs
        due = [it for it in self._hooks if not it.always and it.is_due(*moment)]
        held = {**dict.fromkeys(due, _NOTHING_HELD), **self._held_back}
        self._held_back.clear()
        self._wake({it: held[it] for it in self._hooks if it in held})

    def withdraw_stop(self) -> None:
        """Forget that a hook has asked to stop: the ranks stop together, later."""
        self.stop_reason = self.data_end = None
        self.repeat = None

    def wake(self) -> None:
        self.due.run = self.runs + 1
        self.repeat = None

    def again(self, fetches: Any, feed_dict: Any) -> Any:
        """Make a run like the one before, if no other hook is due; else return ``ANOTHER``."""
        with self._one_at_a_time:
            if (
                (turn := self.repeat) is None  # a hook has asked to stop, or to be called
                or (run := turn.run) is None
                or run.off_steps <= 0  # one is due, or others have made a run
                or not (fetches is turn.leaf or turn.is_of(fetches))
                or not (feed_dict is run.fed or run.is_fed(feed_dict))
                or ((due := self.due.time) is not None and clock.monotonic() >= due)
            ):
                return ANOTHER
            context = None
            if turn.hooks:
                caller = new_tuple(SessionRunArgs, (fetches, feed_dict, None))
                asked = self._ask(turn.turns, turn, turn.hooks, caller, self._hooks)
                if asked.turn is not turn or run.off_steps <= 0:
                    return self.complete(asked)  # they ask for others, or have made a run
                context = asked.context
            result = run.again(feed_dict)
            self.runs += 1
            if context is not None:
                if turn.answering:
                    answer(turn.answering, context, result, self._no_records, self._note_stop)
                if turn.sleepers:
                    self._ask_next_due(turn.sleepers)
            elif turn.watching:
                turn.watch(self._raw.global_step or 0, result, self._stop_for)
            return result if turn.fetches is None else result[0]

    def run_with_hooks(
        self,
        caller: SessionRunArgs,
        run_metadata: Any = None,
        hooks: Iterable[SessionRunHook] | None = None,
    ) -> Any:
        by_id = self._by_id
        chosen = (
            self._hooks if hooks is None else [by_id[id(it)] for it in hooks if id(it) in by_id]
        )
        if not isinstance(caller.feed_dict, Mapping | None) or (hooks is not None and not chosen):
            return self._raw.run(*caller, run_metadata)  # which says what is wrong
        with self._one_at_a_time:
            if hooks is None and not self._iteration.is_open:
                self.check_stop("run")
            asked = self.ask(caller, chosen)
            try:
                return self.complete(asked, None, run_metadata)
            finally:
                self._let_go(asked.turn.hooks)

    def is_due(self) -> bool:
        """Return whether a hook takes part in the next run, made elsewhere."""
        step = (self._raw.global_step or 0) + self.stride
        reached = self.due.is_reached(step, self.runs + 1, StepPart.WHOLE, 0, math.inf)
        return bool(self._watching) or reached

    def ask(self, caller: SessionRunArgs, hooks: Sequence[ScheduledHook] | None = None) -> Asked:
        """Ask those of ``hooks`` that are due; None: all but those that have to be named."""
        hooks = self._hooks if hooks is None else hooks
        is_named = hooks is not self._hooks
        watching = () if is_named else self._watching
        turns = self._turns.get_or_make(
            (is_named, structure_key(caller.fetches), *(caller.feed_dict or ())),
            lambda: CallerTurns(caller, watching, self._merger),
        )
        part = turns.part
        if part is StepPart.NONE and self.within_step:
            part = StepPart.PART  # a run beside the step does not end it
        step = (self._raw.global_step or 0) + (self.stride if part is StepPart.WHOLE else 0)
        due: Hooks = ()
        with self._lock:
            left = self._draws_left()  # 0: a step that draws, and does not count, has ended it
            shared, epochs = self.shared_epochs, self._epochs
            is_told = shared is None or epochs is None or shared.are_at(epochs)
            if not is_told and turns.draws and not is_named:
                left = 0  # the run that begins an epoch tells other ranks of it
            if is_named or self.due.is_reached(step, self.runs + 1, part, turns.draws, left):
                due = self._due(hooks, step, part, turns.draws)
        try:
            return self._ask(turns, turns.last.get(due), due, caller, hooks)
        except BaseException:
            self._let_go(due)
            raise

    def complete(
        self, asked: Asked, run: Callable[..., Any] | None = None, run_metadata: Any = None
    ) -> Any:
        raw, (turn, caller, requests, context, step, hooks) = self._raw, asked
        checkpoint = raw.checkpoint if caller.feed_dict else None
        self._caller = caller
        try:
            result, made, records = self._make(asked, run, run_metadata)
        except (TypeError, ValueError) as error:
            self._merger.note_bad_requests(error, caller, turn.requests_of(requests))
            raise
        except good_ends():  # a loop may catch it and go on
            self._note_data_end(turn)
            raise
        with self._lock:
            woken = self._count(turn, step, hooks)
        answering = self._answering(turn, result, records)
        if woken:
            by_hook = {it[0]: it for it in answering}
            by_hook |= {it: (it, it.after_run, None) for it in woken if it.after_run is not None}
            answering = [by_hook[it] for it in hooks if it in by_hook]
            context = context or SessionRunContext(caller, raw, raw.global_step)
        with raw.after_own_run():
            if turn.watching:
                turn.watch(raw.global_step or 0, result, self._stop_for)
            if context is not None:
                answer(answering, context, result, records, self._note_stop)
        self._note_data_end(turn)
        if caller.feed_dict and raw.checkpoint != checkpoint:
            self.saved_in = self.runs
        is_named = hooks is not self._hooks
        if is_named or turn.sleepers or woken:
            self._ask_next_due([*turn.sleepers, *woken], find=is_named)
        if not is_named and (self.repeat is not turn or made is None or made.off_steps <= 0):
            self._expect(turn, caller, made)
        return result if turn.fetches is None else result[0]

    def _note_data_end(self, turn: Turn) -> None:
        if turn.turns.draws and self._epochs is not None and self._epochs.is_over:
            self.data_end = self._epochs.end

    def count_run(self, step: int) -> None:
        """Count a run that was made elsewhere from ``step`` on while no hook was due."""
        with self._lock:
            woken = self._count(None, step, self._hooks)
        self._wake(dict.fromkeys(woken, _NOTHING_HELD))

    def deliver_between_runs(self) -> None:
        """Call hooks that sleep until others act."""
        step = self._raw.global_step or 0
        asleep = [it for it in self._hooks if it.step == it.time == it.run == math.inf]
        self._ask_next_due(asleep)
        self._wake({hook: _NOTHING_HELD for hook in asleep if step >= hook.step})

    def _wake(self, woken: Mapping[ScheduledHook, Held]) -> None:
        if woken:
            context = SessionRunContext(self._caller, self._raw, self._raw.global_step)
            with self._raw.after_own_run():
                for hook, held in woken.items():
                    if hook.after_run is not None:
                        answering = [(hook, hook.after_run, 0)]
                        records = held.records or self._no_records
                        answer(answering, context, [held.value], records, self._note_stop)
            self._ask_next_due([hook for hook in woken if hook.sleeps])

    def _answering(self, turn: Turn, result: Any, records: tuple[Any, Any]) -> Sequence[Answering]:
        """Return the hooks that ``turn`` answers now; hold the results of those that wait."""
        if not (turn.hooks and self._iteration.is_open):
            return turn.answering
        epochs = self._epochs_done(self._raw.global_step or 0)
        waiting = [it for it in turn.answering if it[0].is_due_by_epochs(epochs)]
        for hook, _, place in waiting:
            value = None if place is None else result[place]
            self._held_back[hook] = Held(value, records, epochs)
        return [it for it in turn.answering if it not in waiting]

    def _epochs_done(self, step: int) -> float | Fraction:
        if self._epochs is None or self.due.epoch == math.inf:
            return -math.inf
        return self._epochs.done_at(step)

    def _draws_left(self) -> float:
        """Return how many draws lead to the end of an epoch for a hook, or of the data."""
        return math.inf if self._epochs is None else self._epochs.draws_until(self.due.epoch)

    def _due(
        self, hooks: Sequence[ScheduledHook], step: int, part: StepPart, draws: int
    ) -> tuple[ScheduledHook, ...]:
        is_timed = self.due.time is not None or hooks is not self._hooks
        now = clock.monotonic() if is_timed else -math.inf
        run = self.runs + 1
        is_ahead = draws or self._epochs is None or self._epochs.input is None
        epochs = self._epochs_done(step if is_ahead else self._raw.global_step or 0)
        shared = self.shared_epochs if draws and hooks is self._hooks else None
        if shared is not None and self._epochs is not None:
            shared.begin(self._epochs, run)
        due = [it for it in hooks if it.always or it.is_due(step, run, now, part, epochs)]
        if shared is not None and any(it.epoch <= epochs and not it.is_lone for it in due):
            shared.wait()
        if self._iteration.is_open:
            self._held_back.update((hook, _NOTHING_HELD) for hook in due if hook.waits)
            due = [hook for hook in due if not hook.waits and self._may_ask(hook, epochs)]
        if not self._is_alone and hooks is self._hooks:
            due = [hook for hook in due if hook.always or not hook.is_taken]
            for hook in due:
                hook.is_taken = True
        return tuple(due)

    def _may_ask(self, hook: ScheduledHook, epochs: float | Fraction) -> bool:
        """Return whether the next run has a later result for ``hook`` than one held back.

        That run ends an epoch. A hook that has acted before it, and is due at another time now,
        does not wait.
        """
        held = self._held_back.get(hook)
        if held is None or hook.epoch > held.epochs:
            return True
        return math.floor(epochs) > math.floor(held.epochs)

    def _let_go(self, hooks: Iterable[ScheduledHook]) -> None:
        if not self._is_alone:
            for hook in hooks:
                hook.is_taken = False

    def _ask(
        self,
        turns: CallerTurns,
        turn: Turn | None,
        due: Hooks,
        caller: SessionRunArgs,
        hooks: Sequence[ScheduledHook],
    ) -> Asked:
        raw = self._raw
        step = raw.global_step
        context: SessionRunContext | None = None
        requests: list[Request] = []
        if due:
            stride = self.stride if turns.part is StepPart.WHOLE else 0
            context = SessionRunContext(caller, raw, None if step is None else step + stride)
            asking = (
                turn.asking
                if turn is not None
                else [Asking(it) for it in due if it.before_run is not None]
            )
            try:
                for it in asking:
                    request = it.before_run(context)
                    requests.append(request)
                    if request is not it.request and not it.asks_again(request):
                        it.hook.check(request)
                        turn = None
                    if context.stop_requested:
                        self._note_stop(context, it.hook)
            except Exception as error:
                note_hook(error, it.hook.name, "before_run")
                raise
        if turn is None:
            turn = turns.turn(due, caller, requests)
        return new_tuple(Asked, (turn, caller, requests, context, step, hooks))

    def _make(
        self, asked: Asked, run: Callable[..., Any] | None, run_metadata: Any
    ) -> tuple[Any, PreparedRun | None, tuple[Any, Any]]:
        """Return the result, the run if it can be made again, and its records."""
        raw, turn, (fetches, feed_dict, options) = self._raw, asked.turn, asked.caller
        if turn.feeds:
            requests = turn.requests_of(asked.requests)
            feed_dict, options = self._merger.merged(asked.caller, requests)
        if turn.fetches is not None:
            fetches = turn.fetches
        if run is not None:
            return run(fetches, feed_dict, options, run_metadata), None, self._no_records
        if options is None and run_metadata is None:
            made = raw.find_run(fetches, feed_dict)
            if made is not None:
                turn.run = made
                return made.again(feed_dict), made, self._no_records
        elif run_metadata is None:
            # TensorFlow's hooks get what their options have produced.
            _, run_metadata = raw.new_records() or (None, None)
        result = raw.run(fetches, feed_dict, options, run_metadata)
        no_options, no_metadata = self._no_records
        options = no_options if options is None else options
        return result, None, (options, no_metadata if run_metadata is None else run_metadata)

    def _count(
        self, turn: Turn | None, before: int | None, hooks: Sequence[ScheduledHook]
    ) -> list[ScheduledHook]:
        """Return those of ``hooks`` that its step has made due."""
        step = self._raw.global_step or 0
        made = step - (before or 0)
        part = StepPart.WHOLE if turn is None else turn.turns.part
        if made > 0 and made != self.stride:
            self.stride = made
            self.repeat = None
        if part is not StepPart.NONE:
            self.within_step = part is StepPart.PART
        is_named = hooks is not self._hooks
        if is_named:  # not counted: their due runs move instead
            for hook in hooks:
                hook.run -= 1
        else:
            self.runs += 1
        if made <= 0 and self.within_step:
            return []
        epochs = self._epochs_done(step)
        if step < self.due.step and epochs < self.due.epoch and not is_named:
            return []
        asked = () if turn is None else turn.hooks
        return [
            hook
            for hook in hooks
            if hook.sleeps
            and (step >= hook.step or epochs >= hook.epoch)
            and hook.watched is None
            and hook not in asked
            and not (self._iteration.is_open and (hook.waits or hook.is_due_by_epochs(epochs)))
        ]

    def check_iteration(self) -> None:
        saved_in, self.saved_in = self.saved_in, None
        if saved_in is None or saved_in == self.runs or self._warned_of_iteration:
            return
        self._warned_of_iteration = True
        _log.warning(
            "%s was saved in the middle of an iteration: the loop feeds several runs before it "
            "calls should_stop() again. Resumed there, it begins the iteration anew, and its "
            "result differs: make these runs inside `with session.iteration():`",
            self._raw.checkpoint,
        )

    def _ask_next_due(self, hooks: Iterable[ScheduledHook], *, find: bool = False) -> None:
        with self._lock:
            for hook in hooks:
                was_always = hook.always
                hook.ask_next_due(self.runs, self._epochs)
                find = find or not (was_always and hook.always)
            if find:
                self.repeat = None
                if self.due.find(hook for hook in self._hooks if hook.watched is None):
                    self.wake()  # on all ranks alike, without a decision

    def _expect(self, turn: Turn, caller: SessionRunArgs, run: PreparedRun | None) -> None:
        with self._lock:
            self.repeat = None
            if run is None or caller.options is not None or not turn.recurs():
                return
            if self.stop_reason is not None or (self._iteration.is_open and self._held_back):
                return  # a stop was asked for, or the first run after the iteration has other hooks
            if run.steps != self.stride and (run.steps or self.due.step != math.inf):
                return  # hooks have made steps, or it makes none
            left = self._draws_left() if turn.turns.draws else math.inf
            step = self._raw.global_step or 0
            run.foresee(self.due.runs_until(step, self.stride, self.runs, left))
            if run.off_steps > 0:
                self.repeat = turn

    def _note_stop(self, context: SessionRunContext, hook: ScheduledHook) -> None:
        if self.stop_reason is None:
            reason = context.stop_reason
            self._stop_for(f"{hook.name} ({reason})" if reason else hook.name)

    def _stop_for(self, reason: str) -> None:
        self.stop_reason = self.stop_reason or reason
        self.repeat = None

    def _measure(self, added: ScheduledHook) -> None:
        secs = getattr(added.hook, "hook_secs", None)  # a foreign hook may lack it
        if secs is not None:  # this hook measures all others
            self._hook_secs = secs
            for hook in self._by_id.values():
                hook.measure(secs)
            self._watching = []  # they are called in every run
        if self._hook_secs is not None:
            added.measure(self._hook_secs)


class LiveSession:
    """A raw session in use."""

    def __init__(self, raw: RawSession, iteration: Iteration | None = None) -> None:
        self.raw = raw
        self.coord = Coordinator(clean_stop_exception_types=())
        self.hooked = HookedSession(raw, iteration)
        self.stopped_by: str | None = None  # the hook that asked while it opened

    @property
    def stop_reason(self) -> str | None:
        hooked = self.hooked
        return hooked.stop_reason or hooked.data_end or self.stopped_by or self.coord.stop_reason

    def close(self, grace_secs: float) -> None:
        self.coord.request_stop()
        try:
            self.coord.join(stop_grace_period_secs=grace_secs, ignore_live_threads=True)
        finally:
            self.raw.close()
