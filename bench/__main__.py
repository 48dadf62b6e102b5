"""``make bench``: a step, a summary, a checkpoint, of runhooks and its peers; ratios in one run."""

from __future__ import annotations

import argparse

from bench import (
    bridges,
    ours,
    peers,
    ranks,
    readers,
    saving,
    sharded_saving,
    summary_writers,
    tensorflow_step,
    torch_step,
    writers,
)
from bench.measure import Contender, measure, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=51, help="rounds of each (%(default)s)")
    turns = parser.parse_args().turns
    show("one trivial step", [*ours.contenders(), *peers.contenders()], turns, 300)
    show("TensorFlow, a trivial step", tensorflow_step.contenders(), turns, 300)
    show("a scalar, as the caller's thread sees it", writers.scalars(), turns, 300)
    show("a scalar that is an array", writers.scalars_of_arrays(), turns, 300)
    writers.show_sustained(turns=5)
    show("a histogram of a million float32, to the file", writers.histograms(), 5, 2)
    show("an image 256x256x3, to the file", writers.images(), 5, 5)
    for name, contenders in summary_writers.contenders().items():
        show(f"SummaryWriter.{name}", contenders, *summary_writers.ROUNDS[name])
    show("EventAccumulator, 200,000 scalars of 20 tags", summary_writers.reading(), 3, 1)
    readers.show(turns=5)
    saving.show(turns=7)
    sharded_saving.show(turns=7)
    show("callbacks of a batch at which no hook is due", bridges.contenders(), turns, 300)
    ranks.show(turns, 100)
    # The last, for they leave PyTorch with one thread.
    show("PyTorch, a trivial step", torch_step.contenders(torch_step.trivial, 8.0), turns, 300)
    show("PyTorch, a step of the digits", torch_step.contenders(torch_step.digits, 20.0), turns, 10)


def show(title: str, contenders: list[Contender], turns: int, times: int) -> None:
    print(f"\n{title}: medians of {turns} rounds of {times}")
    print(table(contenders, measure(contenders, turns, times)), flush=True)


if __name__ == "__main__":
    main()
