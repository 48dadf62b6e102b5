"""Summaries as parts of a graph: what a run that is asked for them returns is a ``Summary``.

Names and arguments are those of ``tf.compat.v1.summary``; where a tensor is taken its name will do,
but for ``text``. The arrays in a summary are read, and so waited for, only when it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runhooks import arguments
from runhooks.events import Message
from runhooks.graph import names
from runhooks.graph.tensor import Tensor
from runhooks.summary.kinds.audio import audio_value
from runhooks.summary.kinds.histogram import histogram_value
from runhooks.summary.kinds.image import image_value
from runhooks.summary.kinds.scalar import scalar_value
from runhooks.summary.kinds.tensor import tensor_value
from runhooks.summary.kinds.text import text_value
from runhooks.summary.metadata import describe
from runhooks.summary.summary_op import graph_of, named, summary_op


def scalar(
    name: str, tensor: Any, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """A summary of one number: ``tensor`` has one element, of any real dtype.

    Its tag is ``name`` under the current name scope, made unique; ``family`` is put in front of
    it, which makes a group of that name in TensorBoard. It joins ``collections``, which is
    ``[GraphKeys.SUMMARIES]`` if None, where ``merge_all`` finds it.
    """

    def make(tag: str, value: Any) -> Any:
        return [scalar_value(tag, value)]

    return summary_op("ScalarSummary", name, named(tensor), collections, family, make)


def histogram(
    name: str, values: Any, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """A summary of how the numbers of an array are spread; any shape, any real dtype.

    Of a pytree of arrays, one for each leaf, tagged ``name/path``. What is counted is counted
    where the engine keeps it: a device hands over the counts, not the array. Tag, ``collections``
    and ``family`` as for ``scalar``.
    """
    values = named(values)
    graph = graph_of(values)
    engine = graph.engine
    counted = graph.add(
        "HistogramCounts",
        lambda value: {path: engine.histogram(leaf) for path, leaf in engine.leaves(value).items()},
        (values,),
        name=names.cleaned(name, "histogram") + "/counts",
    )

    def make(tag: str, by_path: dict[str, Any]) -> Any:
        return [
            histogram_value(f"{tag}/{path}" if path else tag, counts)
            for path, counts in by_path.items()
        ]

    return summary_op("HistogramSummary", name, counted.outputs[0], collections, family, make)


def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """A summary of up to ``max_outputs`` images.

    ``tensor``: ``[N, height, width, channels]`` with 1, 3 or 4 channels, uint8, or floats, which
    are scaled as ``tf.compat.v1.summary.image`` says. Tagged ``name/image`` if ``max_outputs`` is
    1, else ``name/image/0`` and so on; ``collections`` and ``family`` as for ``scalar``.

    Raises ValueError if ``max_outputs`` is less than 1.
    """
    arguments.whole(max_outputs=max_outputs)

    def make(tag: str, images: Any) -> Any:
        return [image_value(tag, images, max_outputs)]

    return summary_op("ImageSummary", name, named(tensor), collections, family, make)


def audio(
    name: str,
    tensor: Any,
    sample_rate: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """A summary of up to ``max_outputs`` clips of sound.

    ``tensor``: floats from -1.0 to 1.0, ``[N, frames]`` or ``[N, frames, channels]``.
    ``sample_rate``: frames a second, a number or a tensor. Tagged ``name/audio`` if
    ``max_outputs`` is 1, else ``name/audio/0`` and so on; ``collections`` and ``family`` as for
    ``scalar``.

    Raises ValueError if ``max_outputs`` is less than 1.
    """
    arguments.whole(max_outputs=max_outputs)

    def make(tag: str, value: tuple[Any, Any]) -> Any:
        samples, rate = value
        return [audio_value(tag, samples, float(rate), max_outputs)]

    return summary_op(
        "AudioSummaryV2", name, (named(tensor), sample_rate), collections, family, make
    )


def text(name: str, tensor: Any, collections: Sequence[str] | None = None) -> Tensor:
    """A summary of text: a str, or an array of them, shown as Markdown.

    Tag and ``collections`` as for ``scalar``.
    """

    def make(tag: str, value: Any) -> Any:
        return [text_value(tag, value)]

    return summary_op("TextSummary", name, tensor, collections, None, make)


def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: str | None = None,
    collections: Sequence[str] | None = None,
    summary_metadata: Message | None = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Tensor:
    """A summary that holds an array as it is: any shape, numbers of any dtype, or strings.

    ``summary_metadata``: a ``SummaryMetadata`` that says which plugin of TensorBoard shows it;
    ``summary_description``, Markdown, and ``display_name`` go into it. Tag, ``collections`` and
    ``family`` as for ``scalar``.
    """
    metadata = describe(summary_metadata, display_name, summary_description)

    def make(tag: str, value: Any) -> Any:
        return [tensor_value(tag, value, metadata)]

    return summary_op("TensorSummaryV2", name, named(tensor), collections, family, make)
