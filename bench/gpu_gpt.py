"""A GPT on a GPU, in JAX and in PyTorch: the same layers, trained on one batch that lies there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any, NamedTuple

import runhooks as rh
from bench.gpu import Program, Training, jax_device, jax_wait, sized, torch_device, torch_wait

RATE = 1e-3
CHARACTERS = 128


class Size(NamedTuple):
    """Of the model, and of a batch: ``sequences`` of ``length`` characters."""

    width: int
    heads: int
    layers: int
    length: int
    sequences: int


FULL, SMALL = Size(512, 8, 8, 256, 8), Size(64, 4, 2, 32, 4)


def of_jax() -> Program:
    import jax
    import jax.numpy as jnp
    import optax

    size = sized(jax_device(), FULL, SMALL)
    optimizer = optax.adamw(RATE)

    def init() -> tuple[Any, Any]:
        keys = iter(jax.random.split(jax.random.key(0), 3 + 4 * size.layers))

        def weights(*shape: int) -> jax.Array:
            return 0.02 * jax.random.normal(next(keys), shape)

        params = {
            "characters": weights(CHARACTERS, size.width),
            "places": weights(size.length, size.width),
            "scores": weights(size.width, CHARACTERS),
            "blocks": [
                {
                    "mixing": weights(size.width, 3 * size.width),
                    "mixed": weights(size.width, size.width),
                    "up": weights(size.width, 4 * size.width),
                    "down": weights(4 * size.width, size.width),
                }
                for _ in range(size.layers)
            ],
        }
        return params, optimizer.init(params)

    def loss_of(params: Any, texts: jax.Array) -> jax.Array:
        x = params["characters"][texts] + params["places"]
        for block in params["blocks"]:
            heads = (jax.nn.standardize(x) @ block["mixing"]).reshape(
                *x.shape[:2], 3 * size.heads, -1
            )
            found = jax.nn.dot_product_attention(*jnp.split(heads, 3, axis=2), is_causal=True)
            x = x + found.reshape(x.shape) @ block["mixed"]
            x = x + jax.nn.gelu(jax.nn.standardize(x) @ block["up"]) @ block["down"]
        scores = jax.nn.standardize(x) @ params["scores"]
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, jnp.roll(texts, -1, 1))
        return jnp.mean(losses)

    def train_step(state: tuple[Any, Any], texts: jax.Array) -> tuple[Any, dict[str, Any]]:
        params, moments = state
        loss, grads = jax.value_and_grad(loss_of)(params, texts)
        updates, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, updates), moments), {"loss": loss}

    shape = size.sequences, size.length
    texts = jax.random.randint(jax.random.key(1), shape, 0, CHARACTERS)

    def plain() -> Training:
        step_of, state = jax.jit(train_step, donate_argnums=0), init()

        def step() -> None:
            nonlocal state
            state, _ = step_of(state, texts)

        return Training(step, lambda: jax_wait(state))

    def graph() -> Any:
        return with_curve(
            rh.jax.graph(train_step, ["loss"], state=init, data=lambda: repeat(texts))
        )

    return Program("JAX", jax_device(), plain, graph)


def of_torch(wrapped: Callable[[Any], Any] = lambda model: model) -> Program:
    import torch

    from gallery import gpt_torch

    torch.set_num_threads(1)
    device = torch_device()
    size = sized(device, FULL, SMALL)
    gpt_torch.WIDTH, gpt_torch.HEADS, gpt_torch.LAYERS, gpt_torch.LENGTH = size[:4]
    texts = torch.randint(CHARACTERS, (size.sequences, size.length), device=device)
    targets = texts.roll(-1, 1)

    def create() -> tuple[Callable[..., Any], dict[str, Any]]:
        model = wrapped(gpt_torch.GPT().to(device))
        optimizer = torch.optim.AdamW(model.parameters(), RATE, fused=True)

        def train_step(texts: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
            optimizer.zero_grad()
            loss = gpt_torch.loss_of(model, texts, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return {"loss": loss}

        return train_step, {"model": model, "optimizer": optimizer}

    def plain() -> Training:
        train_step, _ = create()
        return Training(lambda: train_step(texts, targets), torch_wait)

    def graph() -> Any:
        train_step, objects = create()
        objects["data"] = lambda: repeat((texts, targets))
        return with_curve(rh.torch.graph(train_step, ["loss"], **objects))

    return Program("PyTorch", device, plain, graph)


def with_curve(graph: Any) -> Any:
    with graph.as_default():
        rh.summary.scalar("loss", "loss")
    return graph
