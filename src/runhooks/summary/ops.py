"""Summaries as parts of a graph: what a run that is asked for them returns is a ``Summary``.

The arrays in it are read, and so waited for, only when it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runhooks.graph import names, nest
from runhooks.graph.collections import GraphKeys
from runhooks.graph.graph import Graph, get_default_graph
from runhooks.graph.tensor import Placement, Tensor
from runhooks.summary.histogram import histogram_value
from runhooks.summary.image import image_value
from runhooks.summary.message import Summary
from runhooks.summary.scalar import scalar_value
from runhooks.summary.text import text_value


def scalar(name: str, tensor: Any, collections: Sequence[str] | None = None) -> Tensor:
    """A summary of one number: ``tensor`` has one element, of any real dtype.

    Its tag is ``name`` under the current name scope, made unique. It joins ``collections``, which
    is ``[GraphKeys.SUMMARIES]`` if None, where ``merge_all`` finds it.
    """
    return _summary(
        "ScalarSummary", name, tensor, collections, lambda tag, x: Summary([scalar_value(tag, x)])
    )


def histogram(name: str, values: Any, collections: Sequence[str] | None = None) -> Tensor:
    """A summary of how the numbers of an array are spread; any shape, any real dtype.

    Of a pytree of arrays, one for each leaf, tagged ``name/path``. What is counted is counted
    where the engine keeps it: a device hands over the counts, not the array. Tag and
    ``collections`` as for ``scalar``.
    """
    graph = _graph(values)
    engine = graph.engine
    counted = graph.add(
        "HistogramCounts",
        lambda value: {path: engine.histogram(leaf) for path, leaf in engine.leaves(value).items()},
        (values,),
        name=names.cleaned(name, "histogram") + "/counts",
    )
    return _summary("HistogramSummary", name, counted.outputs[0], collections, _histograms)


def image(
    name: str, tensor: Any, max_outputs: int = 3, collections: Sequence[str] | None = None
) -> Tensor:
    """A summary of up to ``max_outputs`` images.

    ``tensor``: ``[N, height, width, channels]`` with 1, 3 or 4 channels, uint8, or floats, which
    are scaled as ``tf.compat.v1.summary.image`` says. Tagged ``name/image`` if ``max_outputs`` is
    1, else ``name/image/0`` and so on; ``collections`` as for ``scalar``.

    Raises ValueError if ``max_outputs`` is less than 1.
    """
    if max_outputs < 1:
        raise ValueError(f"max_outputs must be at least 1, got {max_outputs}")
    return _summary(
        "ImageSummary",
        name,
        tensor,
        collections,
        lambda tag, images: Summary([image_value(tag, images, max_outputs)]),
    )


def text(name: str, tensor: Any, collections: Sequence[str] | None = None) -> Tensor:
    """A summary of text: a str, or an array of them, shown as Markdown.

    Tag and ``collections`` as for ``scalar``.
    """
    return _summary(
        "TextSummary", name, tensor, collections, lambda tag, x: Summary([text_value(tag, x)])
    )


def merge(
    inputs: Sequence[Tensor], collections: Sequence[str] | None = None, name: str | None = None
) -> Tensor:
    """One summary of all that is in ``inputs``, summaries themselves. It joins ``collections``.

    Raises ValueError if there are none.
    """
    if not inputs:
        raise ValueError("inputs must hold at least one summary, got none")
    op = _graph(inputs).add(
        "MergeSummary",
        Summary.merge,
        (list(inputs),),
        name=name or "Merge/MergeSummary",
        placement=Placement.HOST,
    )
    for key in collections or ():
        op.graph.add_to_collection(key, op.outputs[0])
    return op.outputs[0]


def merge_all(key: str = GraphKeys.SUMMARIES, name: str | None = None) -> Tensor | None:
    """One summary of all in the default graph's collection ``key``; None if there are none."""
    collected = get_default_graph().get_collection(key)
    return merge(collected, name=name) if collected else None


def _summary(
    kind: str,
    name: str,
    value: Any,
    collections: Sequence[str] | None,
    make: Callable[[str, Any], Summary],
) -> Tensor:
    graph = _graph(value)
    name = names.cleaned(name, "summary")
    tag = graph.unique_tag(name)
    op = graph.add(
        kind, lambda value: make(tag, value), (value,), name=name, placement=Placement.HOST
    )
    for key in [GraphKeys.SUMMARIES] if collections is None else collections:
        op.graph.add_to_collection(key, op.outputs[0])
    return op.outputs[0]


def _histograms(tag: str, counted: dict[str, Any]) -> Summary:
    return Summary(
        histogram_value(f"{tag}/{path}" if path else tag, counts)
        for path, counts in counted.items()
    )


def _graph(value: Any) -> Graph:
    found = nest.tensors(value)
    return found[0].graph if found else get_default_graph()
