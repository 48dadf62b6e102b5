"""``gradient_norms``: a summary of the norms of gradients, of each layer and of all together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runhooks.graph import names
from runhooks.graph.tensor import Tensor
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.summary_op import graph_of, summary_op, tree


def gradient_norms(
    gradients: Any,
    name: str = "gradient_norm",
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of the Euclidean norms of gradients, computed only when it is written.

        rh.summary.gradient_norms("grads")  # "gradient_norm", "gradient_norm/dense", ...
        rh.summary.gradient_norms("gradients/model")  # of a graph of rh.torch

    On JAX the step is compiled a second time, to return its gradients. If that takes too long, let
    the step return the norm, and use ``rh.summary.scalar``.

    Args:
        gradients: A tensor that is a pytree of arrays, its name, or a pytree of tensors.
        name: The tag of the norm of all gradients together. The norm of a layer, meaning arrays
            whose paths differ only in the last part, has the tag ``name/layer``.
        collections: As for ``scalar``.
        family: As for ``scalar``.

    Raises:
        TypeError: ``gradients`` is not made of tensors.
        ValueError: It is the name of no tensor.
    """
    gradients = tree("gradient norms", name, gradients)
    graph = graph_of(gradients)
    engine = graph.engine

    def norms(value: Any) -> dict[str, Any]:
        layers: dict[str, Any] = {}
        for path, leaf in engine.leaves(value).items():
            square = engine.sum_of_squares(leaf)
            for layer in dict.fromkeys(("", _layer(path))):
                layers[layer] = layers[layer] + square if layer in layers else square
        return {layer: square**0.5 for layer, square in layers.items()}

    computed = graph.add(
        "GradientNorms", norms, (gradients,), name=names.cleaned(name, "norms") + "/norms"
    )
    return summary_op(
        "GradientNormsSummary",
        name,
        computed.outputs[0],
        collections,
        family,
        lambda tag, found: [
            scalar_value(f"{tag}/{layer}" if layer else tag, norm) for layer, norm in found.items()
        ],
    )


def _layer(path: str) -> str:
    """Return the path of the layer of a parameter: ``"conv1"`` of ``"conv1/kernel"``."""
    end = max(path.rfind("/"), path.rfind("."))  # PyTorch has dots
    return path[:end] if end > 0 else path
