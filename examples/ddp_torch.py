"""The handwritten digits on several processes, with PyTorch's DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/ddp_torch.py --dir runs/ddp

Each rank reads its share of every batch. Rank 0 writes event files and logs, and all ranks save one
checkpoint together. Ctrl-C, or SIGTERM to any rank, stops all of them after the same step. Run the
same command again to resume; the result is that of an uninterrupted run, bit for bit.
"""

import argparse
import itertools
import logging
from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import runhooks as rh

BATCH = 64  # of all ranks together


def batches(rank: int, size: int, step: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The share of ``rank`` in each batch from ``step`` on; a new order in each epoch."""
    pixels, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    images = pixels.float() / 16
    for now in itertools.count(step):
        epoch, batch = divmod(now, len(labels) // BATCH)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        chosen = order[batch * BATCH :][:BATCH][rank::size]
        yield images[chosen], labels[chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits on several ranks.")
    parser.add_argument("--dir", default="runs/ddp", help="run directory (%(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="the last step (%(default)s)")
    parser.add_argument("--save-secs", type=float, default=60, help="seconds between checkpoints")
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("runhooks").setLevel(logging.INFO)

    distributed.init_process_group("gloo")  # the model is on the CPU
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # sums are then the same on any number of cores
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def step(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        optimizer.zero_grad()
        loss = functional.cross_entropy(replica(images), labels)
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    graph = rh.torch.Graph(model=model, optimizer=optimizer)
    with graph.as_default():
        batch = rh.inputs(lambda at: batches(rank, size, at), 2)
        rh.torch.step(step, outputs=["loss"], args=batch)
        rh.summary.scalar("loss", graph["loss"])
        hooks = [
            rh.StopAtStepHook(last_step=args.steps),
            rh.NanTensorHook("loss", late=True),
            rh.LoggingTensorHook(["loss"], every_n_iter=100),
        ]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=args.dir, hooks=hooks, save_checkpoint_secs=args.save_secs
        ) as session:
            while not session.should_stop():
                session.run("train_op")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
