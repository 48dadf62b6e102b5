"""Several summaries of a graph as one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runhooks.graph.collections import GraphKeys
from runhooks.graph.graph import get_default_graph
from runhooks.graph.tensor import Placement, Tensor
from runhooks.summary.message import Summary
from runhooks.summary.summary_op import collect, graph_of


def merge(
    inputs: Sequence[Tensor], collections: Sequence[str] | None = None, name: str | None = None
) -> Tensor:
    """One summary of all that is in ``inputs``, summaries themselves. It joins ``collections``.

    Raises ValueError if there are none.
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
    """One summary of all in the default graph's collection ``key``; None if there are none.

    ``scope``: a regular expression; only those are taken whose names begin with what it matches.
    """
    collected = get_default_graph().get_collection(key)
    if scope is not None:
        collected = [summary for summary in collected if re.match(scope, summary.name)]
    return merge(collected, name=name) if collected else None
