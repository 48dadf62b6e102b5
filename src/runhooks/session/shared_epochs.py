"""``SharedEpochs``: ranks compare their epochs, by which hooks of all ranks go."""

from __future__ import annotations

from collections import defaultdict

from runhooks import clock
from runhooks.errors import DeadlineExceededError
from runhooks.graph.sources import Epochs
from runhooks.ranks import Group
from runhooks.ranks.decisions import Decisions

_BEGINS, _ALIKE = "epoch begins", "epochs alike"
_BEGUN = "epoch {} has {} elements, of which {} were drawn before run {}"
_REMEDY = (
    "hooks that go by epochs would act at different steps: give all ranks the same number of "
    "batches in each epoch, or give the graph, or rh.inputs, steps_per_epoch"
)


class SharedEpochs:
    """Each rank tells rank 0 of an epoch when it begins.

    Rank 0 tells all once those of all are alike, or that one fails. Hooks of all ranks wait for
    that before they act.
    """

    def __init__(self, group: Group, decisions: Decisions) -> None:
        self._group = group
        self._decisions = decisions
        self._exchange = exchange = group.exchange
        self._place: tuple[int, bool] | None = None
        self._told = self._alike = 0  # epochs that this rank has told of, and all have
        # By number and rank, known to rank 0: epoch, length, drawn, run.
        self._of_ranks: defaultdict[int, dict[int, tuple[int, ...]]] = defaultdict(dict)
        exchange.handle(_BEGINS, self._take)
        exchange.handle(_ALIKE, self._go_on)

    def are_at(self, epochs: Epochs) -> bool:
        return self._place is not None and self._place[0] == epochs.progress.done

    def begin(self, epochs: Epochs, run: int) -> None:
        """Tell of the epoch that ``run``, about to draw, may begin."""
        progress = epochs.begun_for_all()
        place = progress.done, progress.is_at_end  # the second: its length was too small
        if place != self._place:
            self._place = place
            self._told += 1
            self._exchange.say(
                *(_BEGINS, self._told, progress.done + 1, progress.length, progress.drawn, run)
            )

    def wait(self) -> None:
        secs = self._group.barrier_secs
        if not self._exchange.wait_until(
            lambda: self._alike >= self._told or self._decisions.stop_at is not None,
            clock.monotonic() + secs,
        ):
            raise DeadlineExceededError(
                f"waited {secs:g} seconds for all {self._group.size} ranks to begin epoch number "
                f"{self._told} of this training: all must make the same calls; see whether one "
                "hangs or is slow"
            )

    def _take(self, rank: int, number: int, *begun: int) -> None:
        of_ranks = self._of_ranks[number]
        of_ranks[rank] = begun
        first = next(iter(of_ranks))
        if of_ranks[first] != of_ranks[rank]:
            # Not rank 0, which would count as having told of its own error.
            at, other = (first, rank) if rank == 0 else (rank, first)
            here, there = (_BEGUN.format(*of_ranks[it]) for it in (at, other))
            self._group.fail(f"its {here}, and on rank {other} {there}, so {_REMEDY}", at)
        elif len(of_ranks) == self._group.size:
            del self._of_ranks[number]
            self._exchange.tell(_ALIKE, number)
            self._exchange.trim()

    def _go_on(self, number: int) -> None:
        self._alike = number
        self._exchange.notify()
