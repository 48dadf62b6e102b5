"""The start of a training of several ranks: who is the chief, and whether all run one program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from runhooks.contract import SessionRunHook
from runhooks.graph.base import BaseGraph
from runhooks.ranks import Group
from runhooks.trigger import Due, Timer, Trigger


def agree_on_start(
    group: Group, says_chief: bool, hooks: Mapping[str, SessionRunHook], graph: BaseGraph
) -> None:
    """Set the chief of ``group`` and compare the programs of all ranks, before a file is written.

    Args:
        group: The ranks.
        says_chief: Whether the program of this rank says that it is the chief, or says nothing.
        hooks: The hooks of this rank that all ranks are to have, by name.
        graph: The graph of this rank.

    Raises:
        ValueError: Naming the ranks that are chiefs, if all are not and they are not one.
        RuntimeError: Naming the rank whose hooks, triggers or graph differ, and the difference.
        DeadlineExceededError: Naming the ranks that are missing.
        PeerFailedError: If another rank has failed.
    """
    group.start_training()
    compared = {name: _described(hook) for name, hook in hooks.items()}
    names = sorted(op.name for op in graph.get_operations())
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    mine = {"chief": says_chief, "hooks": compared, "graph": digest}
    ranks = [json.loads(it) for it in group.gather("start", json.dumps(mine))]
    group.chief = _chief_of([it["chief"] for it in ranks])
    _compare_hooks([it["hooks"] for it in ranks], group.chief)
    if len({it["graph"] for it in ranks}) > 1:
        given = [json.loads(it) for it in group.gather("names", json.dumps(names))]
        _compare_graphs(given, group.chief)


def _chief_of(says: list[bool]) -> int:
    chiefs = [rank for rank, it in enumerate(says) if it]
    if len(chiefs) == len(says):  # nobody has said anything
        return 0
    if len(chiefs) != 1:
        found = f"ranks {', '.join(map(str, chiefs))} are" if chiefs else "no rank is"
        raise ValueError(
            f"{found} the chief: pass is_chief=True on one of the {len(says)} ranks, or leave it "
            "out on all, for rank 0"
        )
    return chiefs[0]


def _compare_hooks(ranks: list[dict[str, Any]], chief: int) -> None:
    for rank, hooks in enumerate(ranks):
        for name in (*ranks[chief], *hooks):
            here, there = hooks.get(name), ranks[chief].get(name)
            if here != there:
                raise RuntimeError(
                    f"rank {rank} runs another program than rank {chief}: its hook {name} is "
                    f"{here or 'missing'}, that of rank {chief} is {there or 'missing'}; give all "
                    "ranks the same hooks, or let a hook that only writes run on the chief alone: "
                    "hook.runs_on = 'chief'"
                )


def _compare_graphs(ranks: list[list[str]], chief: int) -> None:
    for rank, names in enumerate(ranks):
        different = sorted(set(names) ^ set(ranks[chief]))
        if different:
            owner = rank if different[0] in names else chief
            raise RuntimeError(
                f"rank {rank} runs another program than rank {chief}: only the graph of rank "
                f"{owner} has the operation {different[0]!r}; build the same graph on all ranks"
            )


def _described(hook: SessionRunHook) -> str:
    kind = type(hook)
    parts = sorted(_triggers(vars(hook).items()) if hasattr(hook, "__dict__") else [])
    return f"a {kind.__module__}.{kind.__qualname__}" + "".join(f", {it}" for it in parts)


def _triggers(attributes: Iterable[tuple[str, Any]]) -> Iterable[str]:
    for name, value in attributes:
        if isinstance(value, Timer):
            yield f"{name.lstrip('_')}={value.trigger!r}"
        elif isinstance(value, Trigger | Due):
            yield f"{name.lstrip('_')}={value!r}"
