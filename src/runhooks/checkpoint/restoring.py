"""Reads a checkpoint for one of several ranks, however many have saved it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from runhooks.checkpoint.format import read_contents, read_manifest
from runhooks.checkpoint.manifest import STATE_ARRAYS, STATES
from runhooks.checkpoint.sharded import ShardedCheckpoint, read_states, stored_arrays
from runhooks.checkpoint.spans import read_several
from runhooks.checkpoint.states import encode
from runhooks.contract import Snapshot
from runhooks.graph.objects import OBJECT_STATES, RANDOM_STATES
from runhooks.graph.resized import Resized
from runhooks.ranks import Group
from runhooks.stores.path import AnyPath

_log = logging.getLogger("runhooks")


def read_for(group: Group, path: AnyPath, in_parts: bool = False) -> Snapshot:
    """Return what the checkpoint ``path`` holds for this rank of ``group``.

    If as many ranks have saved it as there are now, each gets what it had. If not, the states are
    those of the chief, and ``resized`` says so.

    With several ranks, or ``in_parts``, arrays are ``ArraySource`` objects, which read no more than
    is asked of them. A checkpoint that one process has saved on a disk, for a process alone, is
    read in whole.

    Raises as ``read_checkpoint``.
    """
    manifest = read_manifest(path)
    if manifest.ranks is None:
        if group.size == 1:
            return read_contents(path, manifest)._replace(is_given=True)
        kept = read_states(path, STATES, STATE_ARRAYS, manifest.files)
        alone = Snapshot(dict(stored_arrays(path, manifest)), kept)
        return _resized(alone, 1, group, manifest.global_step)
    sharded = ShardedCheckpoint(path, manifest)
    if manifest.ranks == group.size:
        found = sharded.arrays(group.rank)
        kept = sharded.states(group.rank)
        if group.size == 1 and not in_parts:
            return Snapshot(dict(read_several(found)), kept, is_given=True)
        return Snapshot(dict(found), kept)
    snapshot = Snapshot(dict(sharded.arrays()), sharded.states(manifest.chief))
    differing = frozenset(it for it in sharded.differing() if not _is_random(it))
    if differing and group.is_chief:
        _log.warning(
            "%s was saved by %d ranks, which differed in %s: all ranks get the chief's",
            *(path, manifest.ranks, sorted(differing)[:5]),
        )
    return _resized(snapshot, manifest.ranks, group, manifest.global_step, differing)


def _resized(
    snapshot: Snapshot,
    saved: int,
    group: Group,
    step: int | None,
    differing: frozenset[str] = frozenset(),
) -> Snapshot:
    seed = _seed(snapshot.arrays, snapshot.states, step)
    if group.is_chief:
        _log.info(
            "the checkpoint of step %s was saved by %d ranks, and there are %d: arrays are cut "
            "anew, hooks get the chief's states, and random states are derived from those of the "
            "chief, the rank and the step",
            *(step, saved, group.size),
        )
    return snapshot._replace(resized=Resized(saved, group.size, group.rank, seed, differing))


def _seed(arrays: Mapping[str, Any], states: Mapping[str, Any], step: int | None) -> int:
    """A number that the random states of the chief and the step decide, and nothing else."""
    encoded = encode({"step": step, RANDOM_STATES: states.get(OBJECT_STATES + RANDOM_STATES)})
    found = hashlib.sha256(encoded.text)
    for values in encoded.arrays.values():
        found.update(values.data)
    for name in sorted(filter(_is_random, arrays)):
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return int.from_bytes(found.digest()[:8], "little")


def _is_random(name: str) -> bool:
    return name.partition("/")[0] == RANDOM_STATES
