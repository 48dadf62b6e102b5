"""``Agreement``: how the sessions of several ranks go along with each other."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from runhooks import clock
from runhooks.contract import RawSession, SessionRunHook, StopRequest
from runhooks.errors import OutOfRangeError, PeerFailedError, add_note, described
from runhooks.graph.base import BaseGraph
from runhooks.graph.sources import epoch_input, steps_per_epoch
from runhooks.ranks import Group
from runhooks.ranks.decisions import STOP, Decisions
from runhooks.session.hook_list import HookList, caught
from runhooks.session.hooked import LiveSession
from runhooks.session.scheduled_hook import RankPlacement
from runhooks.session.shared_epochs import SharedEpochs
from runhooks.trigger import Due, Timer, Trigger


def agree_on_start(
    group: Group, says_chief: bool, hooks: Mapping[str, SessionRunHook], graph: BaseGraph
) -> None:
    """Set the chief; raise ValueError or RuntimeError if programs of ranks differ."""
    program = [f"the hook {name}, {_described(hook)}" for name, hook in hooks.items()]
    if any(map(_goes_by_epochs, hooks.values())):
        program.append(f"epochs of {_epoch_of(graph)}")
    program += sorted(f"the operation {op.name!r}" for op in graph.get_operations())
    mine = json.dumps(program)
    digest = hashlib.sha256(mine.encode()).hexdigest()[:32]
    found = json.loads(group.agree("start", json.dumps([says_chief, digest]), _compared))
    if "refused" in found:
        raise ValueError(found["refused"])
    group.chief = found["chief"]
    if "differing" in found:
        here = group.rank in (group.chief, found["differing"])
        raise RuntimeError(
            group.agree("details", mine if here else "", partial(_difference, **found))
        )


def _compared(values: Sequence[str]) -> str:
    """Return the chief, and a rank whose program differs; or what is wrong."""
    ranks = [json.loads(it) for it in values]
    chiefs = [rank for rank, (says_chief, _) in enumerate(ranks) if says_chief]
    if len(chiefs) not in (1, len(ranks)):  # all: nobody has said anything
        shown = ", ".join(map(str, chiefs[:_SHOWN])) + ", …" * (len(chiefs) > _SHOWN)
        refused = (
            f"{f'ranks {shown} are' if chiefs else 'no rank is'} the chief: pass is_chief=True on "
            f"one of the {len(ranks)} ranks, or leave it out on all, for rank 0"
        )
        return json.dumps({"refused": refused})
    found = {"chief": chiefs[0]}
    for rank, (_, digest) in enumerate(ranks):
        if digest != ranks[chiefs[0]][1]:
            return json.dumps(found | {"differing": rank})
    return json.dumps(found)


def _difference(values: Sequence[str], chief: int, differing: int) -> str:
    theirs, ours = json.loads(values[differing]), json.loads(values[chief])
    common = {*theirs} & {*ours}
    found = [
        f"only rank {rank} has {item}"
        for rank, program in ((differing, theirs), (chief, ours))
        for item in [it for it in program if it not in common][:1]
    ] or [
        f"{here} stands where rank {chief} has {there}"
        for here, there in zip(theirs, ours, strict=False)
        if here != there
    ][:1]
    return (
        f"rank {differing} runs another program than rank {chief}: "
        f"{', and '.join(found)}. Give all ranks the same graph, steps_per_epoch or number of "
        "batches, and hooks, also those of the chief where ranks "
        "share a mean or a value; let a hook that only writes run on the chief alone, by "
        "hook.runs_on = 'chief'"
    )


def _values(hook: SessionRunHook) -> dict[str, Any]:
    return vars(hook) if hasattr(hook, "__dict__") else {}


def _goes_by_epochs(hook: SessionRunHook) -> bool:
    timers = [it for it in _values(hook).values() if isinstance(it, Timer)]
    return any(it.trigger.every_epochs is not None for it in timers)


def _epoch_of(graph: BaseGraph) -> str:
    steps, data = steps_per_epoch(graph), epoch_input(graph)
    length = None if data is None else data.args[0].length
    if steps is None and length is None:
        raise ValueError(
            "a hook goes by epochs, and the data have no length that ranks could compare: give the "
            "graph, or rh.inputs, steps_per_epoch"
        )
    return f"{length} elements" if steps is None else f"{steps} steps"


def _described(hook: SessionRunHook) -> str:
    kind = type(hook)
    parts = []
    for name, value in _values(hook).items():
        found = value.trigger if isinstance(value, Timer) else value
        if isinstance(found, Trigger | Due):
            parts.append(f", {name.lstrip('_')}={found!r}")
    return f"a {kind.__module__}.{kind.__qualname__}" + "".join(sorted(parts))


def stopped(reason: str | None) -> OutOfRangeError:
    return OutOfRangeError(f"Stopped by {reason}. Check should_stop() in the loop to exit cleanly")


_log = logging.getLogger("runhooks")

_STRIKE = "strike"
_SHOWN = 8  # of many ranks, in a message


class Agreement:
    """Lets all ranks stop, and call hooks that go by seconds, before the same run.

    A rank that wants to stop waits at the *boundary* before a run, and stops there if all want to;
    otherwise it goes on to the run agreed on.
    """

    def __init__(self, group: Group, stop: StopRequest, hooks: HookList, graph: BaseGraph) -> None:
        self._group = group
        self._stop = stop
        self._hooks = hooks
        self._graph = graph
        self._placement = RankPlacement(group, graph)
        self._decisions = Decisions(group)
        self._shares_epochs = False
        self._wish: str | None = None
        self._reached = 0
        self.ran_beside = False
        self._keeps_time = False  # the chief does
        self._has_struck = False
        self._ended_at = 0.0
        self._asked_by = 0
        self._is_told = self._is_over = False
        self._loop = threading.get_ident()

    def start(self, says_chief: bool) -> None:
        self._decisions.begin()
        self._epochs = SharedEpochs(self._group, self._decisions)
        hooks = self._hooks.by_name
        compared = {name: it for name, it in hooks.items() if self._placement.is_shared(it)}
        agree_on_start(self._group, says_chief, compared, self._graph)
        self._shares_epochs = any(map(_goes_by_epochs, compared.values()))
        self._hooks.place(self._placement)
        self._keeps_time = self._group.is_chief
        if not self._group.is_chief and self._group.has_own_process:
            _log.addFilter(_is_for_all)
        self._decisions.start()

    def open(self, live: LiveSession) -> None:
        """Wait until the sessions of all ranks are open."""
        if self._shares_epochs and steps_per_epoch(self._graph) is None:
            live.hooked.shared_epochs = self._epochs
        self._group.barrier("open")

    def ask(self, reason: str) -> None:
        """Any thread, and a signal handler, may call it."""
        if self._wish is None and self._stop.reason is None:
            self._wish = reason
            self._decisions.propose(STOP, reason)

    def should_stop(self, live: LiveSession) -> bool:
        """Come to the next boundary; return whether the loop is to end there."""
        if threading.get_ident() == self._loop:
            live.hooked.check_iteration()
            if self.ran_beside and self._reached > self._decisions.runs:
                self._decisions.runs += 1  # the loop makes no runs with all hooks
            self.ran_beside = False
            self._reach(live)
        return self._stops(live)

    def make_run(self, live: LiveSession, make: Callable[[], Any]) -> Any:
        if not self._decisions.runs:
            self._loop = threading.get_ident()
        self._reach(live)
        if self._stops(live):
            raise stopped(self._stop.reason)
        self.ran_beside = False
        self._decisions.is_inside = True
        try:
            result = make()
        finally:
            self._decisions.is_inside = False
        self._decisions.runs += 1
        return result

    def blame(self, error: BaseException, checkpoint: str | None) -> BaseException:
        """Tell other ranks of ``error``; return it, or the failure that it is an effect of."""
        here = self._group.rank
        if isinstance(error, PeerFailedError):
            own = self._group.error
            if own is not None and (error.rank, error.cause) == (here, described(own)):
                error = own
        elif isinstance(error, Exception):
            failure = self._decisions.failure()
            if isinstance(failure, PeerFailedError) and failure.rank != here:
                failure.__cause__ = error
                error = failure
            elif isinstance(failure, PeerFailedError) and failure.cause != described(error):
                add_note(error, f"for the other ranks, {failure}")
            elif failure is None and any(it in str(error).lower() for it in ("gloo", "nccl")):
                who = f"rank {1 - here}" if self._group.size == 2 else "another rank"
                note = (
                    f"no rank has told of an error of its own, so {who} has probably died without "
                    "one (SIGKILL, out of memory): see the log of the launcher. The last "
                    f"checkpoint of all ranks is {checkpoint or 'no checkpoint yet'}"
                )
                add_note(error, note)
                # A launcher may kill this rank before its traceback is shown.
                _log.error("%s failed: %s", self._group.runtime, note)
        self._tell(error)
        return error

    def close(self, error: BaseException | None) -> list[BaseException]:
        """End, together or because of ``error``; return the errors of doing so."""
        errors = [] if error is not None else caught(self._decisions.leave)
        if error is not None or errors:
            self.abandon(error or errors[0])
        else:
            self._is_over = True
            secs = clock.monotonic() - self._ended_at
            _log.info("all %d ranks have ended, in %.2f seconds", self._group.size, secs)
        _log.removeFilter(_is_for_all)
        return errors

    def abandon(self, error: BaseException) -> None:
        if not self._is_over:
            self._is_over = True
            self._tell(error)
            self._decisions.abandon()

    def _tell(self, error: BaseException) -> None:
        if not self._is_told:
            self._is_told = True
            if isinstance(error, PeerFailedError):  # passed on, it keeps its author
                self._decisions.tell_failure(error.cause, error.rank)
            else:
                self._decisions.tell_failure(described(error), self._group.rank)

    def _stops(self, live: LiveSession) -> bool:
        # All ranks are in the same part of a step.
        return self._stop.reason is not None and not live.hooked.is_within

    def _reach(self, live: LiveSession) -> None:
        run = self._decisions.runs + 1
        if self._reached == run:
            return
        if self._wish is not None or live.stop_reason is not None:
            live.coord.raise_requested_exception()
            if (reason := live.stop_reason) is not None:
                self.ask(reason)
                live.hooked.withdraw_stop()
            self._decisions.wait_for_stop()
        elif (
            live.hooked.due.shared_time != math.inf
            and self._keeps_time
            and not self._has_struck
            and clock.monotonic() >= live.hooked.due.shared_time
        ):
            self._has_struck = True
            self._decisions.propose(_STRIKE, self._placement.strike())
        self._decisions.begun = run
        if self._decisions.frozen:  # looked at only now: see Decisions
            self._act(run, live)
        self._reached = run

    def _act(self, run: float, live: LiveSession | None) -> None:
        for decision in self._decisions.due(run):
            if decision.kind == STOP:
                self._stop.ask(decision.text)
                self._asked_by = decision.rank
            elif live is not None:
                self._has_struck = False
                self._placement.take(decision.text)
                live.hooked.wake()

    def finish(self, step: int | None, raw: RawSession | None) -> None:
        """Wait for the ends of all loops; note on ``raw`` if their steps differ."""
        if self._stop.reason is None:
            self.ask("the loop has ended")
            self._decisions.wait_for_stop()
            self._act(math.inf, None)
        self._decisions.end_loop(step)
        steps = self._group.agree("end", str(step), _range)
        self._ended_at = clock.monotonic()
        secs = self._ended_at - self._decisions.heard_at
        _log.info(
            "all %d ranks stop before run %s, %.2f seconds after rank %d asked for it: %s",
            *(self._group.size, self._decisions.stop_at, secs, self._asked_by, self._stop.reason),
        )
        if steps and raw is not None:
            raw.ended_apart = True
            if self._group.is_chief:
                last = raw.checkpoint
                _log.warning(
                    "the ranks have ended at different global steps, %s: their data differ in "
                    "length, so no checkpoint is saved at the end%s",
                    steps,
                    "" if last is None else f"; the last common checkpoint remains, {last}",
                )


def _range(steps: Sequence[str]) -> str:
    """Return the steps, with one rank for each; "" if all are the same."""
    ranks = {step: rank for rank, step in reversed(list(enumerate(steps)))}
    shown = [f"{step} on rank {rank}" for step, rank in sorted(ranks.items())]
    more = ", …" * (len(shown) > _SHOWN)
    return "" if len(ranks) == 1 else ", ".join(shown[:_SHOWN]) + more


def _is_for_all(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING
