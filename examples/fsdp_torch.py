"""The handwritten digits on several ranks, each with a shard of the parameters and of Adam's state.

    torchrun --nproc-per-node 2 examples/fsdp_torch.py --steps 300
    torchrun --nproc-per-node 4 examples/fsdp_torch.py --steps 600

The second command resumes the first run on more ranks: checkpoints hold shards, and any number of
ranks can read what each needs. Compared with the loop for one process, only ``fully_shard`` and the
rank's part of each batch are new.
"""

import argparse
import itertools
import logging
from collections.abc import Iterator

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

import runhooks as rh
from digits_hooks import hooks_until

SEED = 0
BATCH = 64  # of all ranks together


def make_model() -> nn.Sequential:
    """A network from pixels [N, 64] to scores [N, 10], of which each rank holds a shard."""
    torch.manual_seed(SEED)  # all ranks begin with the same values
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    model = nn.Sequential(*layers)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return model


def load() -> list[Tensor]:
    """Pixels [N, 64] in 0..1 for training, for the test, and labels [N] for each."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32) / 16
    split = train_test_split(images, labels, test_size=360, stratify=labels, random_state=SEED)
    return [torch.as_tensor(part) for part in split]


def batches(images: Tensor, labels: Tensor, step: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The part of this rank in each batch from ``step`` on; any number of ranks has the same."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for now in itertools.count(step):
        epoch, batch = divmod(now, len(labels) // BATCH)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        chosen = order[batch * BATCH :][:BATCH][rank::ranks]
        yield images[chosen], labels[chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with FSDP2.")
    parser.add_argument("--dir", default="runs/fsdp-torch", help="run directory (%(default)s)")
    parser.add_argument("--steps", type=int, default=300, help="the last step (%(default)s)")
    parser.add_argument("--save-steps", type=int, default=100, help="steps between checkpoints")
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("runhooks").setLevel(logging.INFO)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train_images, test_images, train_labels, test_labels = load()
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def train_step(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    @torch.no_grad()
    def evaluate() -> Tensor:
        scores: Tensor = model(test_images)
        return (scores.argmax(1) == test_labels).float().mean()

    graph = rh.torch.Graph(model=model, optimizer=optimizer)
    with graph.as_default():
        batch = rh.inputs(lambda step: batches(train_images, train_labels, step), 2)
        rh.torch.step(train_step, outputs=["loss"], args=batch)
        rh.call(evaluate, name="evaluate")
        rh.summary.scalar("loss", graph["loss"])
        hooks = hooks_until(args.steps)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=args.dir,
            scaffold=rh.Scaffold(saver=rh.Saver(asynchronous=True)),
            hooks=hooks,
            save_checkpoint_steps=args.save_steps,
        ) as session:
            while not session.should_stop():
                session.run("train_op")
    if dist.get_rank() == 0:
        print(hooks[-1].report)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
