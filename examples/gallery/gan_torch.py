"""A generative adversarial network in PyTorch: two models and two optimizers, trained in turn.

    python examples/gallery/gan_torch.py --dir runs/gan_torch
    python examples/gallery/gan_torch.py --dir runs/plain --plain

``plain`` is the loop as one writes it by hand, and ``hooked`` the same training under runhooks.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader

import runhooks as rh

# --- The models, the data and the steps

BATCH = 64  # 28 in an epoch
NOISE = 16


def load() -> tuple[DataLoader[Any], Tensor]:
    """The loader of images [N, 64] in -1..1, and the noise for the pictures."""
    images: Any = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    return DataLoader(images, BATCH, shuffle=True, drop_last=True), torch.randn(16, NOISE)


def create(args: argparse.Namespace) -> dict[str, Any]:
    """The objects of the training, by the names of the steps' parameters."""
    generator = nn.Sequential(
        nn.Linear(NOISE, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64), nn.Tanh()
    )
    discriminator = nn.Sequential(
        nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(128, 1)
    )
    return {
        "generator": generator,
        "discriminator": discriminator,
        "g_optimizer": torch.optim.Adam(generator.parameters(), args.lr, (0.5, 0.999)),
        "d_optimizer": torch.optim.Adam(discriminator.parameters(), args.lr, (0.5, 0.999)),
    }


def discriminator_step(
    generator: nn.Module, discriminator: nn.Module, d_optimizer: Any, images: Tensor
) -> Any:
    """Learn to tell ``images`` from those that the generator makes."""
    d_optimizer.zero_grad()
    fakes = generator(torch.randn(BATCH, NOISE)).detach()
    d_loss = softplus(-discriminator(images)).mean() + softplus(discriminator(fakes)).mean()
    d_loss.backward()
    d_optimizer.step()
    return {"d_loss": d_loss}


def generator_step(generator: nn.Module, discriminator: nn.Module, g_optimizer: Any) -> Any:
    """Learn to make images that the discriminator takes for real ones."""
    g_optimizer.zero_grad()
    g_loss = softplus(-discriminator(generator(torch.randn(BATCH, NOISE)))).mean()
    g_loss.backward()
    g_optimizer.step()
    return {"g_loss": g_loss}


def test_step(generator: nn.Module, discriminator: nn.Module, noise: Tensor) -> Any:
    """What the generator makes of ``noise`` [16, NOISE]: a picture, and the share that passes."""
    images = generator(noise)
    grid = images.reshape(2, 8, 8, 8).transpose(1, 2).reshape(1, 16, 64, 1)
    picture = ((grid + 1) / 2 * 255).byte()
    return {"passed": (discriminator(images) > 0).float().mean(), "picture": picture}


def report(epoch: int, d_loss: float, g_loss: float) -> None:
    print(f"epoch {epoch}: mean loss {d_loss:.6f} and {g_loss:.6f}")


# --- The loop by hand, and under runhooks


def plain(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    (loader, noise), objects = load(), create(args)
    generator, discriminator = objects["generator"], objects["discriminator"]
    g_optimizer, d_optimizer = objects["g_optimizer"], objects["d_optimizer"]
    first = 1
    args.dir.mkdir(parents=True, exist_ok=True)
    last_file = args.dir / "last.pt"
    if last_file.exists():
        kept = torch.load(last_file)
        for name, it in objects.items():
            it.load_state_dict(kept[name])
        first = kept["epoch"] + 1
    for epoch in range(first, args.epochs + 1):
        d_losses, g_losses = [], []
        for i, images in enumerate(loader):
            outputs = discriminator_step(generator, discriminator, d_optimizer, images)
            d_losses.append(outputs["d_loss"].item())
            if i % 2 == 1:
                outputs = generator_step(generator, discriminator, g_optimizer)
                g_losses.append(outputs["g_loss"].item())
                if len(g_losses) % args.log_interval == 0:
                    print(f"epoch {epoch}, {i + 1}: loss {d_losses[-1]:.6f} and {g_losses[-1]:.6f}")
        report(epoch, sum(d_losses) / len(d_losses), sum(g_losses) / len(g_losses))
        generator.eval()
        discriminator.eval()
        with torch.no_grad():
            tested = test_step(generator, discriminator, noise)
        print(f"test of epoch {epoch}: {tested['passed']:.2%} passed for real")
        picture = Image.fromarray(tested["picture"][0, :, :, 0].numpy())
        picture.save(args.dir / f"{epoch}.png")
        generator.train()
        discriminator.train()
        kept = {name: it.state_dict() for name, it in objects.items()}
        torch.save({**kept, "epoch": epoch}, last_file)


def hooked(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    (loader, noise), objects = load(), create(args)
    with rh.torch.Graph(**objects).as_default():
        rh.torch.step(
            discriminator_step, ["d_loss"], "d_op", counts=False, data=loader, epochs=args.epochs
        )
        rh.torch.step(generator_step, ["g_loss"], "g_op")  # the global step counts these
        rh.summary.scalar("d_loss")
        rh.summary.scalar("g_loss")
        means = [rh.epoch_mean("d_loss"), rh.epoch_mean("g_loss")]
        test = rh.EvaluationHook(
            test_step,
            [noise],
            every_n_epochs=1,
            summary_op=lambda test: rh.summary.image("made", test["picture"]),
            output_dir=args.dir / "test",
        )
        every_steps = rh.Trigger(every_steps=args.log_interval)
        hooks = [
            test,
            rh.LoggingTensorHook(["epoch", "d_loss", "g_loss"], trigger=every_steps),
            rh.CallHook(report, ["epoch", *means], every_n_epochs=1),
        ]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=args.dir,
            hooks=hooks,
            save_checkpoint_steps=args.save_steps,
            save_summaries_steps=10,
        ) as session:
            while not session.should_stop():
                with session.iteration():
                    session.run("d_op")
                    session.run(["d_op", "g_op"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn to make digits, against a discriminator.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/gan_torch"))
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10, help="steps between log lines")
    parser.add_argument("--save-steps", type=int, default=50, help="save every so many steps")
    args = parser.parse_args()
    plain(args) if args.plain else hooked(args)
