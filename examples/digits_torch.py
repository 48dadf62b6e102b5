"""Train a small network on the handwritten digits in PyTorch.

``make train-torch`` runs this, and ``make board`` shows it in TensorBoard. Ctrl-C finishes the
step, saves and exits cleanly; ``kill -9`` loses the steps since the last checkpoint. Run it again
to resume. The result is that of an uninterrupted run, bit for bit: checkpoints also hold the
states of PyTorch's random generators, which this program uses for dropout and to shift the images.
"""

import argparse
import itertools
import logging
from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

import runhooks as rh
from digits_hooks import hooks_until

SEED = 0
BATCH = 64


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.dropout = nn.Dropout(0.2)
        self.dense = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Scores [N, 10] of images [N, 1, 8, 8]."""
        x = self.conv1(images).relu()
        x = self.conv2(x).relu()
        x = functional.max_pool2d(x, 2).flatten(1)
        scores: Tensor = self.dense(self.dropout(x))
        return scores


class Training:
    """What a PyTorch program has anyway; of the hooks and the session it knows nothing."""

    def __init__(self) -> None:
        torch.manual_seed(SEED)
        torch.set_num_threads(1)  # sums are then the same on any number of cores
        self.model = Network()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5 ** (1 / 500))

    def step(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        down, right = torch.randint(-1, 2, (2,)).tolist()
        images = images.roll((down, right), (2, 3))
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return {"loss": loss}

    @torch.no_grad()
    def evaluate(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The accuracy, and three misread digits, the worst first; black where there are fewer."""
        self.model.eval()
        scores = self.model(images)
        self.model.train()
        wrong = scores.argmax(1) != labels
        losses = functional.cross_entropy(scores, labels, reduction="none")
        worst = (losses * wrong).argsort(descending=True)[:3]
        shown = images[worst] * wrong[worst, None, None, None]
        shown = shown.repeat_interleave(8, 2).repeat_interleave(8, 3)
        return 1 - wrong.float().mean(), shown.permute(0, 2, 3, 1)


def load() -> list[Tensor]:
    """Images [N, 1, 8, 8] in 0..1 for training, for the test, and labels [N] for each."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    split = train_test_split(images, labels, test_size=360, stratify=labels, random_state=SEED)
    return [torch.as_tensor(part) for part in split]


def batches(images: Tensor, labels: Tensor, step: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches from ``step`` on: all digits in a new order in each epoch."""
    for now in itertools.count(step):
        epoch, batch = divmod(now, len(labels) // BATCH)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        chosen = order[batch * BATCH :][:BATCH]
        yield images[chosen], labels[chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits.")
    parser.add_argument("--dir", default="runs/digits-torch", help="run directory (%(default)s)")
    parser.add_argument("--steps", type=int, default=2000, help="the last step (%(default)s)")
    parser.add_argument("--save-steps", type=int, default=200, help="steps between checkpoints")
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("runhooks").setLevel(logging.INFO)
    train_images, test_images, train_labels, test_labels = load()
    training = Training()

    graph = rh.torch.Graph(
        model=training.model, optimizer=training.optimizer, scheduler=training.scheduler
    )
    with graph.as_default():
        batch = rh.inputs(lambda at: batches(train_images, train_labels, at), 2)
        rh.torch.step(training.step, outputs=["loss"], args=batch)
        accuracy, misread = rh.call(training.evaluate, test_images, test_labels, num_outputs=2)

        rh.summary.scalar("loss", graph["loss"])
        rh.summary.scalar("learning_rate", graph["learning_rate"])
        rh.summary.scalar("test/accuracy", accuracy)
        rh.summary.image("test/misread", misread, max_outputs=3)
        rh.summary.histogram("gradients", "gradients/model")  # copied only when written
        rh.summary.gradient_norms("gradients/model")

        hooks = hooks_until(args.steps)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=args.dir,
            hooks=hooks,
            save_checkpoint_steps=args.save_steps,
            save_summaries_steps=50,
        ) as session:
            while not session.should_stop():
                session.run("train_op")
    print(hooks[-1].report)
    print(f"look at it: make board, or tensorboard --logdir {args.dir}")


if __name__ == "__main__":
    main()
