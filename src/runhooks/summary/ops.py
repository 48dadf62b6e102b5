"""Summaries as tensors of a graph: a run that fetches one returns a ``Summary``.

Names and arguments are those of ``tf.compat.v1.summary``. In place of a tensor, its name may be
given, except to ``text``; left out, it is the name of the summary: ``scalar("loss")``. The arrays
in a summary are read only when it is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from runhooks import arguments
from runhooks.arrays import host_form
from runhooks.events import Message
from runhooks.graph import names
from runhooks.graph.collections import GraphKeys
from runhooks.graph.default_graph import get_default_graph
from runhooks.graph.engine import Engine
from runhooks.graph.tensor import Placement, Tensor
from runhooks.near_names import with_article
from runhooks.summary.kinds.audio import audio_value
from runhooks.summary.kinds.histogram import histogram_value
from runhooks.summary.kinds.image import image_value
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.kinds.tensor import tensor_value, text_value
from runhooks.summary.message import Summary, describe
from runhooks.summary.summary_op import collect, graph_of, single, summary_op, tree


def scalar(
    name: str,
    tensor: Any = None,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of one number.

    Args:
        name: Its tag is ``name`` under the current name scope, made unique.
        tensor: A tensor of one element of any real dtype, its name, or a number. None: the tensor
            called ``name``.
        collections: The graph collections to add it to. None: ``GraphKeys.SUMMARIES``, where
            ``merge_all`` finds it.
        family: A prefix of the tag, shown as a group of that name in TensorBoard.

    Raises:
        TypeError: ``tensor`` is not a tensor or a number, but a dict or a function, for example.
        ValueError: It is more than one number, or the name of no tensor.
    """
    return summary_op(
        "ScalarSummary",
        name,
        single("scalar", name, _or_named(tensor, name)),
        collections,
        family,
        lambda tag, value: [scalar_value(tag, value)],
    )


def scalars(
    name: str,
    values: Any = None,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of every number in a pytree; larger arrays are left out.

    Args:
        name: As for ``scalar``; the leaves are tagged ``name/path``.
        values: A tensor that is a pytree, its name, or a pytree of tensors. None: the tensor called
            ``name``.
        collections: As for ``scalar``.
        family: As for ``scalar``.

    Raises:
        TypeError: ``values`` is not made of tensors.
        ValueError: It is the name of no tensor; in a run, if there is no number in it.
    """
    values = tree("scalars", name, _or_named(values, name))
    graph = graph_of(values)
    leaves = graph.engine.leaves

    def pick(value: Any) -> dict[str, Any]:
        found = {path: leaf for path, leaf in leaves(value).items() if _is_number(leaf)}
        if not found:
            raise ValueError(
                f"scalars summary {name!r} has found no single number: {_described(leaves(value))}"
            )
        return found

    picked = graph.add(
        "ScalarsOf", pick, (values,), name=names.cleaned(name, "scalars") + "/numbers"
    )
    return summary_op(
        "ScalarsSummary",
        name,
        picked.outputs[0],
        collections,
        family,
        lambda tag, numbers: [scalar_value(_tag(tag, path), it) for path, it in numbers.items()],
    )


def _or_named(tensor: Any, name: str) -> Any:
    """Return ``tensor``, or for None the name of one."""
    return name if tensor is None else tensor


def _described(leaves: dict[str, Any]) -> str:
    if list(leaves) != [""]:
        return f"its value has the leaves {list(leaves)[:5]}"
    form = host_form(leaves[""])
    if form is None:
        return f"its value is {with_article(type(leaves['']).__name__)}"
    return (
        f"its value is an array of shape {list(form[0])}: write rh.summary.histogram, or a scalar "
        "of what rh.call computes of it"
    )


def _is_number(leaf: Any) -> bool:
    form = host_form(leaf)
    return form is not None and math.prod(form[0]) == 1 and form[1].kind in "biufV"


def histogram(
    name: str,
    values: Any = None,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of how the numbers of an array are distributed.

    The numbers are counted on their device, which transfers only the counts, not the array.

    Args:
        name: As for ``scalar``; the leaves of a pytree are tagged ``name/path``.
        values: A tensor of any shape and real dtype or a pytree of these, its name, or a pytree of
            such tensors. None: the tensor called ``name``.
        collections: As for ``scalar``.
        family: As for ``scalar``.

    Raises:
        TypeError: ``values`` is not made of tensors.
    """
    values = tree("histogram", name, _or_named(values, name))
    graph = graph_of(values)
    engine = graph.engine

    def count(value: Any) -> dict[str, Any]:
        leaves = engine.leaves(value).items()
        return {path: _counted(engine, _tag(name, path), leaf) for path, leaf in leaves}

    counted = graph.add(
        "HistogramCounts",
        count,
        (values,),
        name=names.cleaned(name, "histogram") + "/counts",
    )

    return summary_op(
        "HistogramSummary",
        name,
        counted.outputs[0],
        collections,
        family,
        lambda tag, counts: [histogram_value(_tag(tag, path), it) for path, it in counts.items()],
    )


def _tag(tag: str, path: str) -> str:
    return f"{tag}/{path}" if path else tag


def _counted(engine: Engine, tag: str, leaf: Any) -> Any:
    try:
        return engine.histogram(leaf)
    except TypeError as error:
        raise TypeError(f"histogram summary {tag!r}: {error}") from error


def image(
    name: str,
    tensor: Any = None,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of images.

    Args:
        name: The images are tagged ``name/image/0`` and on; ``name/image`` if ``max_outputs`` is 1.
        tensor: ``[N, height, width, channels]`` with 1, 3 or 4 channels, uint8, or floats, which
            are scaled as by ``tf.compat.v1.summary.image``. None: the tensor called ``name``.
        max_outputs: How many images to write at most.
        collections: As for ``scalar``.
        family: As for ``scalar``.

    Raises:
        ValueError: ``max_outputs`` is below 1.
        TypeError: As for ``scalar``.
    """
    arguments.whole(max_outputs=max_outputs)

    return summary_op(
        "ImageSummary",
        name,
        single("image", name, _or_named(tensor, name)),
        collections,
        family,
        lambda tag, images: [image_value(tag, images, max_outputs)],
    )


def audio(
    name: str,
    tensor: Any,
    sample_rate: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of clips of sound.

    Args:
        name: The clips are tagged ``name/audio/0`` and on; ``name/audio`` if ``max_outputs`` is 1.
        tensor: ``[N, frames]`` or ``[N, frames, channels]``, floats from -1.0 to 1.0.
        sample_rate: Frames a second, a number or a tensor.
        max_outputs: How many clips to write at most.
        collections: As for ``scalar``.
        family: As for ``scalar``.

    Raises:
        ValueError: ``max_outputs`` is below 1.
        TypeError: As for ``scalar``.
    """
    arguments.whole(max_outputs=max_outputs)

    return summary_op(
        "AudioSummaryV2",
        name,
        (single("audio", name, tensor), sample_rate),
        collections,
        family,
        lambda tag, given: [audio_value(tag, given[0], float(given[1]), max_outputs)],
    )


def text(name: str, tensor: Any, collections: Sequence[str] | None = None) -> Tensor:
    """Return a summary of text, which TensorBoard shows as Markdown.

    Args:
        name: As for ``scalar``.
        tensor: A tensor that is a str or an array of them, or such a text itself.
        collections: As for ``scalar``.
    """
    return summary_op(
        "TextSummary",
        name,
        single("text", name, tensor),
        collections,
        None,
        lambda tag, value: [text_value(tag, value)],
    )


def tensor_summary(
    name: str,
    tensor: Any = None,
    summary_description: str | None = None,
    collections: Sequence[str] | None = None,
    summary_metadata: Message | None = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Tensor:
    """Return a summary that holds an array as it is.

    Args:
        name: As for ``scalar``.
        tensor: Numbers of any dtype, or strings, of any shape. None: the tensor called ``name``.
        summary_description: A description in Markdown, stored in the metadata.
        collections: As for ``scalar``.
        summary_metadata: A ``SummaryMetadata`` that says which plugin of TensorBoard shows it.
        family: As for ``scalar``.
        display_name: Shown instead of the tag; stored in the metadata.
    """
    metadata = describe(summary_metadata, display_name, summary_description)

    return summary_op(
        "TensorSummaryV2",
        name,
        single("tensor", name, _or_named(tensor, name)),
        collections,
        family,
        lambda tag, value: [tensor_value(tag, value, metadata)],
    )


def merge(
    inputs: Sequence[Tensor], collections: Sequence[str] | None = None, name: str | None = None
) -> Tensor:
    """Merge the summaries ``inputs`` into one, and add it to ``collections``.

    Raises:
        ValueError: ``inputs`` is empty.
    """
    if not inputs:
        raise ValueError("inputs must hold at least one summary, got none")
    op = graph_of(inputs).add(
        "MergeSummary",
        Summary.merge,
        (list(inputs),),
        name=name or "Merge/MergeSummary",
        placement=Placement.HOST,
    )
    collect(op.outputs[0], collections or ())
    return op.outputs[0]


def merge_all(
    key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None
) -> Tensor | None:
    """Merge all summaries in a collection of the default graph; None if there are none.

    Args:
        key: The collection.
        scope: A regular expression; only summaries whose names begin with a match are taken.
        name: The name of the operation.
    """
    collected = get_default_graph().get_collection(key)
    if scope is not None:
        collected = [summary for summary in collected if re.match(scope, summary.name)]
    return merge(collected, name=name) if collected else None
