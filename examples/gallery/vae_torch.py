"""A variational autoencoder in PyTorch: pictures of reconstructions and of samples in each epoch.

    python examples/gallery/vae_torch.py --dir runs/vae_torch
    python examples/gallery/vae_torch.py --dir runs/plain --plain

``plain`` is the loop as one writes it by hand, and ``hooked`` the same training under runhooks.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, random_split

import runhooks as rh

# --- The model, the data and the step

LATENTS = 8


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2 * LATENTS))
        self.decoder = nn.Sequential(nn.Linear(LATENTS, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The reconstruction [N, 64] in logits, and mean and log variance of the latents."""
        mean, log_variance = self.encoder(images).chunk(2, 1)
        latents = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(latents), mean, log_variance


def load(batch_size: int) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """The loaders for training and test, of images [N, 64] in 0..1."""
    images: Any = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    train, test = random_split(images, [1437, 360])
    return DataLoader(train, batch_size, shuffle=True), DataLoader(test, 90)


def create(args: argparse.Namespace) -> dict[str, Any]:
    """The objects of the training, by the names of the step's parameters."""
    model = Autoencoder()
    return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=args.lr)}


def loss_of(logits: Tensor, images: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Of one image: the cross entropy of its pixels, and the divergence of its latents."""
    pixels = functional.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    divergence = (mean**2 + log_variance.exp() - log_variance - 1).sum() / 2
    return (pixels + divergence) / len(images)


def train_step(model: nn.Module, optimizer: Any, images: Tensor) -> Any:
    optimizer.zero_grad()
    logits, mean, log_variance = model(images)
    loss = loss_of(logits, images, mean, log_variance)
    loss.backward()
    optimizer.step()
    return {"loss": loss}


def test_step(model: nn.Module, images: Tensor) -> Any:
    logits, mean, log_variance = model(images)
    loss = loss_of(logits, images, mean, log_variance)
    return {"loss": loss, "pictures": grid_of(torch.cat([images[:8], logits[:8].sigmoid()]))}


@torch.no_grad()
def sample(model: Any) -> Tensor:
    """Sixteen new digits in a picture, of the same noise each time."""
    noise = torch.randn(16, LATENTS, generator=torch.Generator().manual_seed(0))
    return grid_of(model.decoder(noise).sigmoid())


def grid_of(images: Tensor) -> Tensor:
    """A picture [1, 16, 64, 1], in uint8, of 16 images [16, 64] in two rows."""
    grid = images.reshape(2, 8, 8, 8).transpose(1, 2).reshape(1, 16, 64, 1)
    return (grid * 255).byte()


def report(epoch: int, loss: float) -> None:
    print(f"epoch {epoch}: mean loss {loss:.6f}")


# --- The loop by hand, and under runhooks


def save_picture(picture: Tensor, file: Path) -> None:
    Image.fromarray(picture[0, :, :, 0].numpy()).save(file)


def plain(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    train_loader, test_loader = load(args.batch_size)
    objects = create(args)
    model, optimizer = objects["model"], objects["optimizer"]
    first, best = 1, float("inf")
    args.dir.mkdir(parents=True, exist_ok=True)
    last_file = args.dir / "last.pt"
    if last_file.exists():
        kept = torch.load(last_file)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first, best = kept["epoch"] + 1, kept["best"]
    for epoch in range(first, args.epochs + 1):
        model.train()
        total, count = 0.0, 0
        for images in train_loader:
            total += train_step(model, optimizer, images)["loss"].item() * len(images)
            count += len(images)
        report(epoch, total / count)
        model.eval()
        total, count = 0.0, 0
        with torch.random.fork_rng(), torch.no_grad():  # the training goes on with its numbers
            for i, images in enumerate(test_loader):
                tested = test_step(model, images)
                total += tested["loss"].item() * len(images)
                count += len(images)
                if i == 0:
                    save_picture(tested["pictures"], args.dir / f"reconstructed_{epoch}.png")
            save_picture(sample(model), args.dir / f"sampled_{epoch}.png")
        print(f"test of epoch {epoch}: loss {total / count:.6f}")
        if total / count < best:
            best = total / count
            torch.save(model.state_dict(), args.dir / "best.pt")
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**kept, "epoch": epoch, "best": best}, last_file)


def hooked(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    train_loader, test_loader = load(args.batch_size)
    objects = create(args)
    graph = rh.torch.graph(train_step, ["loss"], data=train_loader, epochs=args.epochs, **objects)
    with graph.as_default():
        rh.summary.scalar("loss")
        samples = rh.call(sample, objects["model"])
        test = rh.EvaluationHook(
            test_step,
            test_loader,
            every_n_epochs=1,
            summary_op=lambda test: [
                rh.summary.image("reconstructed", test["pictures"]),
                rh.summary.image("sampled", samples),
            ],
            output_dir=args.dir / "test",
        )
        hooks = [test, rh.CallHook(report, ["epoch", rh.epoch_mean("loss")], every_n_epochs=1)]
        best = rh.Saver(keep=[rh.KeepLast(2), rh.KeepBest(test.metric("loss"), mode="min")])
        rh.train.train(
            "train_op",
            args.dir,
            hooks,
            saver=best,
            save_checkpoint_steps=args.save_steps,
            save_summaries_steps=10,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn to draw digits with an autoencoder.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/vae_torch"))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-steps", type=int, default=50, help="save every so many steps")
    args = parser.parse_args()
    plain(args) if args.plain else hooked(args)
