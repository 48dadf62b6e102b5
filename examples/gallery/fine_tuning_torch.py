"""Fine-tuning in PyTorch: the body of another training, a new head, frozen and then unfrozen.

    python examples/gallery/fine_tuning_torch.py --dir runs/fine_tuning_torch
    python examples/gallery/fine_tuning_torch.py --dir runs/plain --plain

A network learns the digits 0 to 4. Then a new head on its frozen body learns 5 to 9 from few
images, and at last both learn together, slowly. ``plain`` is the loop as one writes it by hand, and
``hooked`` the same training under runhooks.
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
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Dropout(0.25), nn.Linear(32 * 4 * 4, 5))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(images))
        return scores


def load(first: int, count: int) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """The loaders of ``count`` images of five digits from ``first`` on, and of 200 for the test."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    wanted = torch.tensor((labels >= first) & (labels < first + 5))
    digits = TensorDataset(images[wanted], torch.tensor(labels)[wanted] - first)
    train, test, _ = random_split(digits, [count, 200, len(digits) - count - 200])
    # Any DataLoader draws a seed; this one not from the generator that dropout draws from.
    return DataLoader(train, 32, shuffle=True), DataLoader(test, 100, generator=torch.Generator())


def create(lr: float, frozen: bool = False) -> dict[str, Any]:
    """The objects of a training, by the names of the step's parameters."""
    model = Network()
    model.body.requires_grad_(not frozen)
    trained = [it for it in model.parameters() if it.requires_grad]
    return {"model": model, "optimizer": torch.optim.Adam(trained, lr)}


def train_step(model: nn.Module, optimizer: Any, images: Tensor, labels: Tensor) -> Any:
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return {"loss": loss}


def test_step(model: nn.Module, images: Tensor, labels: Tensor) -> Any:
    return {"accuracy": (model(images).argmax(1) == labels).float().mean()}


def report(epoch: int, loss: float) -> None:
    print(f"epoch {epoch}: mean loss {loss:.6f}")


# --- The loop by hand, and under runhooks


def fit(folder: Path, objects: Any, loaders: Any, epochs: int) -> Any:
    """Train, and return the weights that were best in the test."""
    (model, optimizer), (train_loader, test_loader) = objects.values(), loaders
    first, best = 1, 0.0
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "last.pt").exists():
        kept = torch.load(folder / "last.pt")
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first, best = kept["epoch"] + 1, kept["best"]
    for epoch in range(first, epochs + 1):
        model.train()
        total, count = 0.0, 0
        for images, labels in train_loader:
            loss = train_step(model, optimizer, images, labels)["loss"].item()
            total, count = total + loss * len(images), count + len(images)
        report(epoch, total / count)
        model.eval()
        correct, count = 0.0, 0
        with torch.no_grad():
            for images, labels in test_loader:
                tested = test_step(model, images, labels)
                correct += tested["accuracy"].item() * len(images)
                count += len(images)
        print(f"test of epoch {epoch}: {correct / count:.2%} right")
        if correct / count > best:
            best = correct / count
            torch.save(model.state_dict(), folder / "best.pt")
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**kept, "epoch": epoch, "best": best}, folder / "last.pt")
    return torch.load(folder / "best.pt")


def plain(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    other, loaders = load(0, 600), load(5, 200)
    pretrained = fit(args.dir / "pretrained", create(args.lr), other, args.epochs)
    objects = create(args.lr, frozen=True)
    body = {name: it for name, it in pretrained.items() if name.startswith("body.")}
    objects["model"].load_state_dict(body, strict=False)
    with_head = fit(args.dir / "head", objects, loaders, args.epochs)
    objects = create(args.lr / 10)
    objects["model"].load_state_dict(with_head)
    fit(args.dir / "tuned", objects, loaders, args.epochs)


def train_from(args: argparse.Namespace, name: str, objects: Any, loaders: Any, start: Any) -> None:
    """Train from the weights ``start``."""
    train_loader, test_loader = loaders
    folder = args.dir / name
    graph = rh.torch.graph(train_step, ["loss"], data=train_loader, epochs=args.epochs, **objects)
    with graph.as_default():
        rh.summary.scalar("loss")
        mean = rh.epoch_mean("loss")
        test = rh.EvaluationHook(
            test_step, test_loader, every_n_epochs=1, output_dir=folder / "test"
        )
        rh.train.train(
            "train_op",
            folder,
            [test, rh.CallHook(report, ["epoch", mean], every_n_epochs=1)],
            saver=rh.Saver(keep=[rh.KeepLast(2), rh.KeepBest(test.metric("accuracy"))]),
            scaffold=rh.Scaffold(init_from=start),
            save_checkpoint_steps=args.save_steps,
            save_summaries_steps=10,
        )


def hooked(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    other, loaders = load(0, 600), load(5, 200)
    train_from(args, "pretrained", create(args.lr), other, None)
    body = rh.InitFrom(args.dir / "pretrained", only="model/body", best="accuracy")
    train_from(args, "head", create(args.lr, frozen=True), loaders, body)
    with_head = rh.InitFrom(args.dir / "head", best="accuracy")
    train_from(args, "tuned", create(args.lr / 10), loaders, with_head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fine-tune a network with a new head.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/fine_tuning_torch"))
    parser.add_argument("--epochs", type=int, default=8, help="of each of the three trainings")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-steps", type=int, default=50, help="save every so many steps")
    args = parser.parse_args()
    plain(args) if args.plain else hooked(args)
