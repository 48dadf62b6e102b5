"""``SharedEpochs``: several ranks compare their epochs, whose ends hooks of all ranks go by."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from runhooks import clock
from runhooks.errors import DeadlineExceededError
from runhooks.graph.epochs import Epochs
from runhooks.ranks import Group
from runhooks.ranks.decisions import Decisions

_BEGINS, _ALIKE = "epoch begins", "epochs alike"

_REMEDY = (
    "hooks that go by epochs would act at different steps: give all ranks the same number of "
    "batches in each epoch, or give the graph, or rh.inputs, steps_per_epoch"
)


class Begun(NamedTuple):
    """Where an epoch of one rank has begun, or goes on behind its length.

    Attributes:
        run: The number of the run that draws the next element.
        epoch: The number of the epoch, from 1.
        drawn: The elements of it that were drawn before.
        length: How many it has.
    """

    run: int
    epoch: int
    drawn: int
    length: int | None

    def __str__(self) -> str:
        told = f"epoch {self.epoch} has {self.length} elements"
        return f"{told}, of which {self.drawn} were drawn before run {self.run}"


class SharedEpochs:
    """What one rank tells of its epochs, and whether they are those of the others.

    Each tells rank 0 of an epoch when it begins, and waits for nobody; rank 0 tells all once those
    of all are alike, or that one fails. Hooks of all ranks wait for that before they act.

    Args:
        group: The ranks.
        decisions: Those of the training, which has begun.
    """

    def __init__(self, group: Group, decisions: Decisions) -> None:
        self._group = group
        self._decisions = decisions
        self._exchange = exchange = group.exchange
        self._place: tuple[int, bool] | None = None
        self._told = self._alike = 0  # how many epochs this rank has told of, and all have
        self._of_ranks: defaultdict[int, dict[int, Begun]] = defaultdict(dict)  # known to rank 0
        exchange.handle(_BEGINS, self._take)
        exchange.handle(_ALIKE, self._go_on)

    def are_at(self, epochs: Epochs) -> bool:
        """Return whether this rank has told of the epoch that the data are in."""
        return self._place is not None and self._place[0] == epochs.progress.done

    def begin(self, epochs: Epochs, run: int) -> None:
        """Tell of the epoch that ``run`` begins, if it begins one: it is about to draw."""
        progress = epochs.begun_for_all()
        place = progress.done, progress.is_at_end  # the second: its length was too small
        if place != self._place:
            self._place = place
            self._told += 1
            self._exchange.say(
                *(_BEGINS, self._told, run, progress.done + 1, progress.drawn, progress.length)
            )

    def wait(self) -> None:
        """Return once all ranks have begun this epoch alike, or stop.

        Raises:
            PeerFailedError: If one has not.
            DeadlineExceededError: If one does not come.
        """
        secs = self._group.barrier_secs
        if not self._exchange.wait_until(self._may_go_on, clock.monotonic() + secs):
            raise DeadlineExceededError(
                f"waited {secs:g} seconds for all {self._group.size} ranks to begin epoch number "
                f"{self._told} of this training, at whose end hooks act on all of them: all ranks "
                "must make the same calls, and see whether one hangs or is slow"
            )

    def _may_go_on(self) -> bool:
        return self._alike >= self._told or self._decisions.stop_at is not None

    def _take(self, rank: int, number: int, *begun: int) -> None:
        of_ranks = self._of_ranks[number]
        of_ranks[rank] = Begun(*begun)
        first = next(iter(of_ranks))
        if of_ranks[first] != of_ranks[rank]:
            # Not of rank 0, which would count as having told of its own error.
            at, other = (first, rank) if rank == 0 else (rank, first)
            cause = f"its {of_ranks[at]}, and on rank {other} {of_ranks[other]}, so {_REMEDY}"
            self._group.fail(cause, at)
        elif len(of_ranks) == self._group.size:
            del self._of_ranks[number]
            self._exchange.tell(_ALIKE, number)
            self._exchange.trim()

    def _go_on(self, number: int) -> None:
        self._alike = number
        self._exchange.notify()
