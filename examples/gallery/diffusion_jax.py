"""A small denoising diffusion model of digits in plain JAX: averaged weights, samples as pictures.

    python examples/gallery/diffusion_jax.py --dir runs/diffusion_jax
    python examples/gallery/diffusion_jax.py --dir runs/plain --plain

``plain`` is the loop as one writes it by hand, and ``hooked`` the same training under runhooks.
"""

import argparse
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import runhooks as rh

# --- The model, the data and the step

LEVELS = 50  # of noise
WIDTH = 128
DECAY = 0.98  # of the averaged weights
BETAS = jnp.linspace(1e-3, 0.2, LEVELS)
SIGNAL = jnp.cumprod(1 - BETAS)  # the share of the image's variance that is left at each level
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-3))


class Batches:
    """The images in batches, in a new order in each epoch."""

    def __init__(self, images: Any, size: int) -> None:
        self.images, self.size = images, size
        self.random = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.images) // self.size

    def __iter__(self) -> Iterator[Any]:
        order = self.random.permutation(len(self.images))
        for chosen in order[: len(self) * self.size].reshape(len(self), self.size):
            yield self.images[chosen]


def load(batch_size: int) -> Any:
    """The batches for training and those for the test, of images [N, 64] in -1..1."""
    images = (load_digits().data / 8 - 1).astype(np.float32)
    images, test_images = train_test_split(images, test_size=360, random_state=0)
    return Batches(images, batch_size), np.split(test_images, 4)


def create_params() -> Any:
    shapes = {
        "first": (64, WIDTH),
        "time": (32, WIDTH),
        "middle": (WIDTH, WIDTH),
        "last": (WIDTH, 64),
    }
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {
        name: {
            "kernel": jax.random.normal(key, shape) / jnp.sqrt(shape[0]),
            "bias": jnp.zeros(shape[1]),
        }
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def predict_noise(params: Any, images: Any, level: Any) -> Any:
    """The noise [N, 64] in ``images`` [N, 64], whose levels of noise are ``level`` [N]."""

    def dense(name: str, x: Any) -> Any:
        return x @ params[name]["kernel"] + params[name]["bias"]

    angles = level[:, None] * jnp.exp(-jnp.arange(16) / 3)
    time = dense("time", jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1))
    x = jax.nn.silu(dense("first", images) + time)
    x = x + jax.nn.silu(dense("middle", x) + time)
    return dense("last", x)


def denoising_loss(params: Any, key: Any, images: Any) -> Any:
    level_key, noise_key = jax.random.split(key)
    level = jax.random.randint(level_key, (len(images),), 0, LEVELS)
    noise = jax.random.normal(noise_key, images.shape)
    signal = SIGNAL[level][:, None]
    noisy = jnp.sqrt(signal) * images + jnp.sqrt(1 - signal) * noise
    return jnp.mean((predict_noise(params, noisy, level) - noise) ** 2)


@jax.jit
def train_step(params: Any, opt_state: Any, rng: Any, images: Any) -> Any:
    rng, key = jax.random.split(rng)
    loss, grads = jax.value_and_grad(denoising_loss)(params, key, images)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, rng, {"loss": loss}


@jax.jit
def test_step(params: Any, images: Any) -> Any:
    return {"loss": denoising_loss(params, jax.random.key(2), images)}


@jax.jit
def sample(params: Any) -> Any:
    """Sixteen new digits in a picture [1, 32, 32, 1], uint8."""

    def denoise(i: Any, carried: Any) -> Any:
        images, key = carried
        key, noise_key = jax.random.split(key)
        level = LEVELS - 1 - i
        beta = BETAS[level]
        noise = predict_noise(params, images, jnp.full(16, level))
        images = (images - beta / jnp.sqrt(1 - SIGNAL[level]) * noise) / jnp.sqrt(1 - beta)
        fresh = jnp.where(level > 0, jnp.sqrt(beta), 0.0)
        return images + fresh * jax.random.normal(noise_key, images.shape), key

    key, first_key = jax.random.split(jax.random.key(3))
    start = jax.random.normal(first_key, (16, 64)), key
    images, _ = jax.lax.fori_loop(0, LEVELS, denoise, start)
    grid = images.reshape(4, 4, 8, 8).transpose(0, 2, 1, 3).reshape(1, 32, 32, 1)
    return (jnp.clip((grid + 1) / 2, 0, 1) * 255).astype(jnp.uint8)


def report(epoch: int, loss: Any) -> None:
    print(f"epoch {epoch}: loss {loss:.6f}")


# --- The loop by hand, and under runhooks


@jax.jit
def moved(averages: Any, params: Any) -> Any:
    return jax.tree.map(lambda old, new: old + (1 - DECAY) * (new - old), averages, params)


def plain(args: argparse.Namespace) -> Any:
    train_data, test_data = load(args.batch_size)
    params, rng = create_params(), jax.random.key(1)
    opt_state, averages = optimizer.init(params), None
    first, best = 1, float("inf")
    args.dir.mkdir(parents=True, exist_ok=True)
    last_file = args.dir / "last.pickle"
    if last_file.exists():
        kept = pickle.loads(last_file.read_bytes())
        params, opt_state, averages = kept["params"], kept["opt_state"], kept["averages"]
        rng = jax.random.wrap_key_data(kept["rng"])
        first, best = kept["epoch"] + 1, kept["best"]
    for epoch in range(first, args.epochs + 1):
        losses = []
        for images in train_data:
            params, opt_state, rng, outputs = train_step(params, opt_state, rng, images)
            averages = params if averages is None else moved(averages, params)
            losses.append(outputs["loss"])
        report(epoch, np.mean(losses))
        tested = [test_step(averages, images)["loss"] for images in test_data]
        loss = np.average(tested, weights=[len(images) for images in test_data])
        print(f"test of epoch {epoch}: loss {loss:.6f}")
        Image.fromarray(np.asarray(sample(averages))[0, :, :, 0]).save(args.dir / f"{epoch}.png")
        if loss < best:
            best = float(loss)
            (args.dir / "best.pickle").write_bytes(pickle.dumps(jax.device_get(averages)))
        kept = {"params": params, "opt_state": opt_state, "averages": averages}
        kept |= {"rng": jax.random.key_data(rng), "epoch": epoch, "best": best}
        last_file.write_bytes(pickle.dumps(jax.device_get(kept)))
    return params


def hooked(args: argparse.Namespace) -> None:
    train_data, test_data = load(args.batch_size)
    params = create_params()
    states = {"params": params, "opt_state": optimizer.init(params), "rng": jax.random.key(1)}
    graph = rh.jax.graph(train_step, data=train_data, epochs=args.epochs, **states)
    with graph.as_default():
        rh.summary.scalar("loss")
        pictures = rh.summary.image("samples", rh.call(sample, graph["params"]), max_outputs=1)
        ema = rh.EmaHook("params", DECAY, debias=False)
        test = rh.EvaluationHook(
            test_step,
            test_data,
            every_n_epochs=1,
            averages=ema,
            summary_op=pictures,
            output_dir=args.dir / "test",
        )
        means = ["epoch", rh.epoch_mean("loss")]
        rh.train.train(
            "train_op",
            args.dir,
            hooks=[ema, test, rh.CallHook(report, means, every_n_epochs=1)],
            saver=rh.Saver(keep=[rh.KeepLast(2), rh.KeepBest(test.metric("loss"), mode="min")]),
            save_checkpoint_steps=args.save_steps,
            save_summaries_steps=10,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generate digits by denoising.")
    parser.add_argument("--plain", action="store_true", help="the loop by hand")
    parser.add_argument("--dir", type=Path, default=Path("runs/diffusion_jax"))
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--save-steps", type=int, default=50, help="save every so many steps")
    args = parser.parse_args()
    plain(args) if args.plain else hooked(args)
