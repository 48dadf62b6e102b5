"""Summaries as tensors of a graph, as in ``tf.compat.v1.summary``: a run returns a ``Summary``.

In place of a tensor, its name may be given, except to ``text``.
"""

from __future__ import annotations

import logging
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from inspect import isroutine
from numbers import Number
from operator import add
from typing import Any

from runhooks import arguments
from runhooks.arrays import host_form, is_array
from runhooks.events import Message
from runhooks.events.format.proto import text_field
from runhooks.graph import nest
from runhooks.graph.base import GraphKeys, get_default_graph
from runhooks.graph.engine import Engine
from runhooks.graph.graph import Graph, own_graph
from runhooks.graph.nodes import Effect, Operation, Placement, Tensor, Variable, cleaned_name
from runhooks.graph.sources import EPOCH
from runhooks.near_names import with_article
from runhooks.summary.media import audio_value, image_value
from runhooks.summary.message import Summary, Value
from runhooks.summary.values import (
    histogram_value,
    kept_number,
    scalar_value,
    tensor_value,
    text_value,
)

_log = logging.getLogger("runhooks")


def _graph_of(value: Any) -> Graph:
    found = nest.tensors(value)
    return own_graph(found[0].graph if found else None)


def _single(kind: str, name: str, value: Any) -> Any:
    """Return ``value``, or the tensor that it names; if it is None, the tensor called ``name``."""
    what = _what(kind, name)
    if value is None and kind not in ("audio", "text"):
        value = name
    if kind != "text":
        value = _named(what, value)
    is_known = isinstance(value, Variable) and not callable(value.initial_value)
    held = value.initial_value if is_known else value
    if isinstance(held, Mapping):
        key = next(iter(held), "loss")
        raise TypeError(
            f"{what} takes one tensor, got a {type(held).__name__} with {sorted(map(str, held))}: "
            f"write a summary for each, of value[{key!r}] and so on"
        )
    for leaf in nest.leaves(held):
        if not isinstance(leaf, Tensor | Number | str | bytes) and not is_array(leaf):
            raise TypeError(_wrong(what, leaf))
    if kind == "scalar" and isinstance(held, list | tuple) and len(held) != 1:
        raise ValueError(f"{what} takes one number, got {len(held)}: write a summary for each")
    if kind == "scalar" and not nest.tensors(held):
        kept_number(name, held)
    if kind == "scalar" and not isinstance(held, Tensor | Number) and value is held:
        _log.warning(
            "%s is of an array, so that each run writes the same: give a tensor of the graph, or "
            "its name, for what changes",
            what,
        )
    return value


def _tree(kind: str, name: str, values: Any) -> Any:
    """Return ``values``, a pytree of tensors, or the tensor that it names."""
    what = _what(kind, name)
    values = _named(what, values)
    for leaf in nest.leaves(values):
        if isinstance(leaf, Operation) or values is None or isroutine(leaf):
            raise TypeError(_wrong(what, leaf))
    return values


def _what(kind: str, name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, got {name!r}: look at the order of the arguments")
    return f"{kind} summary {name!r}"


def _named(what: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    element = get_default_graph().as_graph_element(value)
    outputs = element.outputs if isinstance(element, Operation) else (element,)
    if not outputs:
        raise ValueError(f"{what} needs a tensor: the operation {value!r} has no value")
    return outputs[0]


def _wrong(what: str, leaf: Any) -> str:
    if isinstance(leaf, Operation):
        cure = f"give its output {leaf.name + ':0'!r}" if leaf.outputs else "it has no value"
        return f"{what} needs a tensor, got the operation {leaf.name!r}: {cure}"
    cure = ": rh.call(function, ...) makes a tensor of its result" if callable(leaf) else ""
    return f"{what} needs a tensor, its name, a number or an array, got {reprlib.repr(leaf)}{cure}"


def _of_tensor(
    kind: str,
    name: str,
    tensor: Any,
    collections: Sequence[str] | None,
    family: str | None,
    make: Callable[[str, Any], Value],
) -> Tensor:
    value = _single(kind.partition("Summary")[0].lower(), name, tensor)
    return _summary_op(kind, name, value, collections, family, lambda tag, it: [make(tag, it)])


def _summary_op(
    kind: str,
    name: str,
    value: Any,
    collections: Sequence[str] | None,
    family: str | None,
    make: Callable[[str, Any], Iterable[Value]],
) -> Tensor:
    """Add an operation that gives the summary of ``make(tag, value)``.

    The tag is ``name`` under the name scope, made unique; with a ``family``,
    ``family/scope/family/name``.
    """
    if collections is not None and (
        isinstance(collections, str) or not isinstance(collections, Iterable)
    ):
        raise TypeError(
            f"collections must be a list of names, got {collections!r}: runhooks.summary adds "
            "summaries to a graph; to write a value at a step, use a runhooks.summary.FileWriter"
        )
    name = cleaned_name(name, "summary")
    if family is not None:
        family = cleaned_name(family, "summary")
        name = f"{family}/{name}"
    graph = _graph_of(value)
    tag = graph.unique_tag(name)
    if family is not None:
        tag = f"{family}/{tag}"
    summary = graph.add(
        kind,
        lambda value: Summary(make(tag, value)),
        (value,),
        # or it would be found before the tensor "epoch"
        name=f"{name}_summary" if name == EPOCH else name,
        placement=Placement.HOST,
    ).outputs[0]
    for key in [GraphKeys.SUMMARIES] if collections is None else collections:
        graph.add_to_collection(key, summary)
    return summary


def is_summary(element: Any) -> bool:
    op = element.op if isinstance(element, Tensor) else element
    return isinstance(op, Operation) and op.type.endswith(("Summary", "SummaryV2"))


def scalar(
    name: str,
    tensor: Any = None,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of one number.

    Args:
        name: The tag, under the current name scope and made unique.
        tensor: A tensor of one element, its name, or a number. None: the tensor called ``name``.
        collections: The graph collections to add it to. None: ``GraphKeys.SUMMARIES``, where
            ``merge_all`` finds it.
        family: A prefix of the tag, by which TensorBoard groups.

    Raises:
        TypeError: ``tensor`` is something else.
        ValueError: It is more than one number, or the name of no tensor.
    """
    return _of_tensor("ScalarSummary", name, tensor, collections, family, scalar_value)


def scalars(
    name: str,
    values: Any = None,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of every number in a pytree; larger arrays are left out.

    Args:
        name: The numbers are tagged ``name/path``.
        values: A pytree of tensors, or a tensor that is a pytree, or its name. None: the tensor
            called ``name``.
        collections: As for ``scalar``.
        family: As for ``scalar``.

    Raises:
        TypeError: ``values`` is not made of tensors.
        ValueError: It is the name of no tensor; in a run, there is no number in it.
    """
    values = _tree("scalars", name, name if values is None else values)

    def pick(leaves: dict[str, Any]) -> dict[str, Any]:
        found = {path: leaf for path, leaf in leaves.items() if _is_number(leaf)}
        if not found:
            raise ValueError(
                f"scalars summary {name!r} has found no single number: {_described(leaves)}"
            )
        return found

    part = "ScalarsOf", "numbers"
    return _by_path("ScalarsSummary", name, part, values, pick, collections, family, scalar_value)


def _by_path(
    kind: str,
    name: str,
    part: tuple[str, str],
    values: Any,
    compute: Callable[[dict[str, Any]], dict[str, Any]],
    collections: Sequence[str] | None,
    family: str | None,
    make: Callable[[str, Any], Value],
) -> Tensor:
    """Add a summary of what ``compute`` returns of the leaves, tagged ``name/path``.

    ``part`` is the type of the operation that computes it, and the end of its name.
    """
    of_part, ending = part
    graph = _graph_of(values)
    computed = graph.add(
        of_part,
        lambda value: compute(graph.engine.leaves(value)),
        (values,),
        name=f"{cleaned_name(name, 'summary')}/{ending}",
    ).outputs[0]
    return _summary_op(
        kind,
        name,
        computed,
        collections,
        family,
        lambda tag, found: [make(_tag(tag, path), it) for path, it in found.items()],
    )


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
    """Return a summary of how numbers are distributed, counted on their device.

    Args:
        name: The tag; the leaves of a pytree are tagged ``name/path``.
        values: As for ``scalars``, of any shapes and real dtypes.
        collections: As for ``scalar``.
        family: As for ``scalar``.

    Raises:
        TypeError: ``values`` is not made of tensors.
    """
    values = _tree("histogram", name, name if values is None else values)
    engine = _graph_of(values).engine

    def count(leaves: dict[str, Any]) -> dict[str, Any]:
        return {path: _counted(engine, _tag(name, path), it) for path, it in leaves.items()}

    part, make = ("HistogramCounts", "counts"), histogram_value
    return _by_path("HistogramSummary", name, part, values, count, collections, family, make)


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
        name: As the tag of ``image_value``.
        tensor: As for ``image_value``, or its name. None: the tensor called ``name``.
        max_outputs: How many to write at most.
        collections: As for ``scalar``.
        family: As for ``scalar``.

    Raises:
        ValueError: ``max_outputs`` is below 1.
        TypeError: As for ``scalar``.
    """
    arguments.whole(max_outputs=max_outputs)
    make = partial(image_value, max_outputs=max_outputs)
    return _of_tensor("ImageSummary", name, tensor, collections, family, make)


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
        name: As the tag of ``audio_value``.
        tensor: As for ``audio_value``, or its name.
        sample_rate: Frames a second, a number or a tensor.
        max_outputs: How many to write at most.
        collections: As for ``scalar``.
        family: As for ``scalar``.

    Raises:
        ValueError: ``max_outputs`` is below 1.
        TypeError: As for ``scalar``.
    """
    arguments.whole(max_outputs=max_outputs)
    return _summary_op(
        "AudioSummaryV2",
        name,
        (_single("audio", name, tensor), sample_rate),
        collections,
        family,
        lambda tag, given: [audio_value(tag, given[0], float(given[1]), max_outputs)],
    )


def text(name: str, tensor: Any, collections: Sequence[str] | None = None) -> Tensor:
    """Return a summary of text, which TensorBoard shows as Markdown.

    Args:
        name: As for ``scalar``.
        tensor: A tensor that is a str or an array of them, or the text.
        collections: As for ``scalar``.
    """
    return _of_tensor("TextSummary", name, tensor, collections, None, text_value)


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
        summary_description: Markdown, in place of that of the metadata.
        collections: As for ``scalar``.
        summary_metadata: A ``SummaryMetadata``.
        family: As for ``scalar``.
        display_name: Shown instead of the tag, in place of that of the metadata.
    """
    metadata = b"" if summary_metadata is None else summary_metadata.SerializeToString()
    # Of a field given twice, the later counts.
    metadata += text_field(2, display_name or "") + text_field(3, summary_description or "")
    make = partial(tensor_value, metadata=metadata)
    return _of_tensor("TensorSummaryV2", name, tensor, collections, family, make)


def merge(
    inputs: Sequence[Tensor], collections: Sequence[str] | None = None, name: str | None = None
) -> Tensor:
    """Merge the summaries ``inputs`` into one; raise ValueError if there are none."""
    if not inputs:
        raise ValueError("inputs must hold at least one summary, got none")
    graph = _graph_of(inputs)
    merged = graph.add(
        "MergeSummary",
        Summary.merge,
        (list(inputs),),
        name=name or "Merge/MergeSummary",
        placement=Placement.HOST,
    ).outputs[0]
    for key in collections or ():
        graph.add_to_collection(key, merged)
    return merged


def merge_all(
    key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None
) -> Tensor | None:
    """Merge the summaries in the collection ``key`` of the default graph; None if there are none.

    ``scope`` is a regular expression that their names begin with.
    """
    collected = get_default_graph().get_collection(key)
    if scope is not None:
        collected = [summary for summary in collected if re.match(scope, summary.name)]
    return merge(collected, name=name) if collected else None


def gradient_norms(
    gradients: Any,
    name: str = "gradient_norm",
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of the Euclidean norms of gradients.

    Args:
        gradients: A tensor that is a pytree of arrays, its name, or a pytree of tensors.
        name: The tag of the norm of all, where shared parameters count once. That of a layer, the
            arrays whose paths differ only in the last part, is tagged ``name/layer``.
        collections: As for ``scalar``.
        family: As for ``scalar``.

    Raises:
        TypeError: ``gradients`` is not made of tensors.
        ValueError: It is the name of no tensor.
    """
    gradients = _tree("gradient norms", name, gradients)
    engine, is_captured = _graph_of(gradients).engine, _is_captured(gradients)

    def norms(leaves: dict[str, Any]) -> dict[str, Any]:
        layers: dict[str, dict[Any, Any]] = {}
        for path, leaf in leaves.items():
            square, key = engine.sum_of_squares(leaf), id(leaf) if is_captured else path
            for layer in ("", _layer(path)):
                layers.setdefault(layer, {})[key] = square
        return {layer: reduce(add, squares.values()) ** 0.5 for layer, squares in layers.items()}

    part, kind = ("GradientNorms", "norms"), "GradientNormsSummary"
    return _by_path(kind, name, part, gradients, norms, collections, family, scalar_value)


def _is_captured(gradients: Any) -> bool:
    """Whether an array found twice is of a shared parameter; a step may return one for two."""
    found = nest.tensors(gradients)
    return bool(found) and all(it.op.effect is Effect.STEP_CAPTURE for it in found)


def _layer(path: str) -> str:
    """Return ``"conv1"`` of ``"conv1/kernel"``."""
    end = max(path.rfind("/"), path.rfind("."))  # PyTorch has dots
    return path[:end] if end > 0 else path
