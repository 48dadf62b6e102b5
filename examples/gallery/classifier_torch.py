"""A classifier in PyTorch: a shuffled loader, a scheduler and a test in each epoch, log lines.

    python examples/gallery/classifier_torch.py --dir runs/classifier_torch
    python examples/gallery/classifier_torch.py --dir runs/plain --plain

``plain`` is the loop as one writes it by hand, and ``hooked`` the same training under runhooks.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, random_split

import runhooks as rh

# --- The model, the data and the step


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.conv2(self.conv1(images).relu()).relu()
        x = functional.max_pool2d(x, 2).flatten(1)
        scores: Tensor = self.fc(self.dropout(x))
        return scores


def load(batch_size: int) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """The loaders for training and test, of images [N, 1, 8, 8] in 0..1 and labels [N]."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    train, test = random_split(TensorDataset(images, torch.tensor(labels)), [1437, 360])
    # Any DataLoader draws a seed; this one not from the generator that dropout draws from.
    test_loader = DataLoader(test, 90, generator=torch.Generator())
    return DataLoader(train, batch_size, shuffle=True), test_loader


def create(args: argparse.Namespace) -> dict[str, Any]:
    """The objects of the training, by the names of the step's parameters."""
    model = Network().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=args.gamma)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def train_step(model: nn.Module, optimizer: Any, images: Tensor, labels: Tensor) -> Any:
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return {"loss": loss}


def test_step(model: nn.Module, images: Tensor, labels: Tensor) -> Any:
    scores = model(images)
    accuracy = (scores.argmax(1) == labels).float().mean()
    return {"loss": functional.cross_entropy(scores, labels), "accuracy": accuracy}


def report(epoch: int, loss: float) -> None:
    print(f"epoch {epoch}: mean loss {loss:.6f}")


# --- The loop by hand, and under runhooks


def plain(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    train_loader, test_loader = load(args.batch_size)
    objects = create(args)
    model, optimizer, scheduler = objects["model"], objects["optimizer"], objects["scheduler"]
    first, best = 1, 0.0
    args.dir.mkdir(parents=True, exist_ok=True)
    last_file = args.dir / "last.pt"
    if last_file.exists():
        kept = torch.load(last_file)
        for name, it in objects.items():
            it.load_state_dict(kept[name])
        first, best = kept["epoch"] + 1, kept["best"]
    for epoch in range(first, args.epochs + 1):
        model.train()
        total, count = 0.0, 0
        for i, (images, labels) in enumerate(train_loader):
            images, labels = images.to(args.device), labels.to(args.device)
            loss = train_step(model, optimizer, images, labels)["loss"].item()
            total, count = total + loss * len(images), count + len(images)
            if (i + 1) % args.log_interval == 0:
                print(f"epoch {epoch}, batch {i + 1} of {len(train_loader)}: loss {loss:.6f}")
        report(epoch, total / count)
        model.eval()
        test_loss, correct, count = 0.0, 0.0, 0
        with torch.no_grad():
            for images, labels in test_loader:
                images, labels = images.to(args.device), labels.to(args.device)
                tested = test_step(model, images, labels)
                test_loss += tested["loss"].item() * len(images)
                correct += tested["accuracy"].item() * len(images)
                count += len(images)
        print(f"test of epoch {epoch}: loss {test_loss / count:.6f}, {correct / count:.2%} right")
        scheduler.step()
        if correct / count > best:
            best = correct / count
            torch.save(model.state_dict(), args.dir / "best.pt")
        kept = {name: it.state_dict() for name, it in objects.items()}
        torch.save({**kept, "epoch": epoch, "best": best}, last_file)


def hooked(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    train_loader, test_loader = load(args.batch_size)
    objects = create(args)
    graph = rh.torch.graph(
        train_step, ["loss"], data=train_loader, epochs=args.epochs, device=args.device, **objects
    )
    with graph.as_default():
        rh.summary.scalar("loss")
        rh.summary.scalar("learning_rate")
        mean = rh.epoch_mean("loss")
        test = rh.EvaluationHook(
            test_step, test_loader, every_n_epochs=1, output_dir=args.dir / "test"
        )
        hooks = [
            test,
            rh.LoggingTensorHook(["epoch", "loss"], every_n_iter=args.log_interval),
            rh.CallHook(report, ["epoch", mean], every_n_epochs=1),
            rh.CallHook(objects["scheduler"].step, every_n_epochs=1),
        ]
        best = rh.Saver(keep=[rh.KeepLast(2), rh.KeepBest(test.metric("accuracy"))])
        rh.train.train(
            "train_op",
            args.dir,
            hooks,
            saver=best,
            save_checkpoint_steps=args.save_steps,
            save_summaries_steps=10,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Classify digits with PyTorch.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/classifier_torch"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--gamma", type=float, default=0.7, help="of the rate, after each epoch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--log-interval", type=int, default=10, help="batches between log lines")
    parser.add_argument("--save-steps", type=int, default=50, help="save every so many steps")
    args = parser.parse_args()
    plain(args) if args.plain else hooked(args)
