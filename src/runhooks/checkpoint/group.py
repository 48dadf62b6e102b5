"""All ranks of a group write one checkpoint, and restore the same one.

Ranks meet three times in the group's store, never in a collective: when the draft is there, when
all have written, and when the chief has committed. An error of one is told to all at the next of
these, so a checkpoint is complete on all of them, or absent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runhooks.checkpoint.drafts import joined_draft, new_draft
from runhooks.checkpoint.format import (
    Checkpoint,
    Content,
    begun_manifest,
    checkpoint_of,
    read_contents,
    read_manifest,
)
from runhooks.checkpoint.latest import newest_sound
from runhooks.checkpoint.manifest import STATE_ARRAYS, STATES, Draft, FileDigest, Manifest, files_of
from runhooks.checkpoint.reading import place_of
from runhooks.checkpoint.shards import (
    ShardedCheckpoint,
    ShardIndex,
    digests_of,
    read_several,
    read_states,
    stored_arrays,
    together,
    write_rank,
)
from runhooks.checkpoint.states import encode
from runhooks.contract import Snapshot
from runhooks.errors import DataLossError, NotFoundError, PeerFailedError, described
from runhooks.errors import described as described_error
from runhooks.graph.objects import OBJECT_STATES, RANDOM_STATES, Resized
from runhooks.ranks import Group
from runhooks.stores.path import AnyPath


def write_together(
    group: Group,
    path: AnyPath,
    content: Content,
    *,
    global_step: int | None,
    previous: Checkpoint | None,
    metrics: Mapping[str, float],
    modes: Mapping[str, str],
    replaces: bool,
) -> Checkpoint:
    """Save what all ranks of ``group`` have as the checkpoint ``path``.

    All ranks call it, in threads if they like. ``global_step``, ``previous``, ``metrics`` and
    ``modes``, as for ``write_content``, are the chief's. In a store, where several processes may
    save at a time, one that is there is replaced if ``replaces`` says that it is known.

    Raises:
        FileExistsError: Another process has saved it.
        OSError: This rank cannot write its files.
        ValueError: What the ranks have does not make a whole. The chief alone raises it.
        PeerFailedError: Another rank has failed, or could not write its part.
        DeadlineExceededError: Ranks are missing; it names them.
    """
    save = _GroupSave(group, path)
    try:
        of_chief = save.begin(content)
        save.write(content, global_step, of_chief)
        return save.commit(begun_manifest(global_step, previous, metrics, modes), replaces)
    except BaseException:
        save.abandon()
        raise


def agreed(
    group: Group, name: str, act: Callable[[], Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return what ``act`` returned on each rank, or raise on all ranks if it raised on one.

    Args:
        group: The group, all ranks of which call this.
        name: What they do, as for ``Group.gather``.
        act: What this rank does; its result can be JSON.

    Raises:
        Exception: What ``act`` raised here.
        PeerFailedError: It raised on another rank.
        DeadlineExceededError: Ranks are missing.
    """
    failure: Exception | None = None
    told: dict[str, Any] = {}
    try:
        told["done"] = act()
    except Exception as error:  # noqa: BLE001 - raised below, once the others know
        failure, told["error"] = error, described_error(error)
        group.error = failure
    try:
        replies = [json.loads(reply) for reply in group.gather(name, json.dumps(told))]
    except Exception as error:
        if failure is None:
            raise
        raise failure from error
    if failure is not None:
        raise failure
    for rank, reply in enumerate(replies):
        if "error" in reply:
            raise PeerFailedError(rank, reply["error"])
    return [reply["done"] for reply in replies]


class _GroupSave:
    """One save by all ranks, step by step."""

    def __init__(self, group: Group, path: AnyPath) -> None:
        self._group = group
        self._path = path
        # Several savers may be at work in threads: each meets the others under a name of its own.
        self._name = f"checkpoint {path.parent.name}/{path.name.rpartition('-')[0] or path.name}"
        self._draft: Draft | None = None
        self._written: list[Mapping[str, Any]] = []

    def begin(self, content: Content) -> Mapping[str, str] | None:
        """Begin the draft; return the digests of the chief's arrays, None on the chief."""

        def act() -> Mapping[str, Any]:
            if not self._group.is_chief:
                return {}
            self._draft = new_draft(self._path)
            digests = digests_of(content.arrays) if self._group.size > 1 else {}
            return {"draft": self._draft.name, "digests": digests}

        begun = self._agreed("begins", act)[self._group.chief]
        if self._group.is_chief:
            return None
        self._draft = joined_draft(self._path, begun["draft"])
        digests: Mapping[str, str] = begun["digests"]
        return digests

    def write(
        self, content: Content, global_step: int | None, of_chief: Mapping[str, str] | None
    ) -> None:
        """Write the files of this rank; return when all ranks have."""
        draft = self._require_draft()

        def act() -> Mapping[str, Any]:
            files = write_rank(draft, self._group.rank, *content, of_chief)
            if of_chief is not None:
                draft.sync()
            return {"step": global_step, "files": files}

        self._written = self._agreed("is written", act)

    def commit(self, manifest: Manifest, replaces: bool) -> Checkpoint:
        """Let the chief complete the checkpoint; return it."""

        def act() -> Mapping[str, Any]:
            if not self._group.is_chief:
                return {}
            draft = self._require_draft()
            whole = self._whole(draft, manifest)
            draft.commit(whole, replaces)
            saved = checkpoint_of(self._path, whole)
            known = {"metrics": dict(saved.metrics), "modes": dict(saved.modes)}
            return saved._asdict() | known | {"path": None}

        done = self._agreed("is committed", act)[self._group.chief]
        return Checkpoint(**{**done, "path": self._path})

    def abandon(self) -> None:
        """Let the chief remove what is left of it."""
        if self._group.is_chief and self._draft is not None:
            self._draft.abandon()

    def _whole(self, draft: Draft, manifest: Manifest) -> Manifest:
        """The manifest of what all ranks have written. ValueError if that is not a whole."""
        steps = [reply["step"] for reply in self._written]
        if len(set(steps)) > 1:
            raise ValueError(f"the ranks are at different global steps, {steps}: save in step")
        files: dict[str, FileDigest] = {}
        indexes: dict[int, ShardIndex] = {}
        for rank, reply in enumerate(self._written):
            digests = {name: FileDigest(*digest) for name, digest in reply["files"].items()}
            name = files_of(rank).shards
            try:
                data = draft.read(name, digests[name])
            except DataLossError as error:
                raise ValueError(
                    f"the files of rank {rank} are not in {self._path.parent}: checkpoints must be "
                    f"on a file system that all ranks share ({error})"
                ) from error
            indexes[rank] = ShardIndex.from_bytes(data)
            files.update({draft.folder + name: digest for name, digest in digests.items()})
        return manifest._replace(
            files=files, arrays=together(indexes), ranks=self._group.size, chief=self._group.chief
        )

    def _agreed(self, what: str, act: Callable[[], Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return agreed(self._group, f"{self._name} {what}", act)

    def _require_draft(self) -> Draft:
        assert self._draft is not None  # begin() comes first
        return self._draft


Restore = Callable[[AnyPath], object]


def restore_together(
    group: Group, checkpoint_dir: str | os.PathLike[str], restore: Restore
) -> str | None:
    """Restore the newest checkpoint of a directory that no rank of ``group`` finds damaged.

    All ranks call it. The chief looks for the checkpoints. Each rank reads only what it needs of
    one, so that some may find a damage and others not.

    Args:
        group: The group.
        checkpoint_dir: The directory, which all ranks share.
        restore: Restores a checkpoint, in place of one that was restored before.

    Returns:
        The path of the checkpoint; None if there is none.

    Raises:
        DataLossError: All checkpoints are damaged.
        PeerFailedError: Another rank cannot restore for another reason.
        Exception: What ``restore`` raises.
    """
    talk = _Talk(group, place_of(checkpoint_dir), restore)
    return talk.lead() if group.is_chief else talk.follow()


class _Talk:
    """What the ranks say to each other: the chief which checkpoint to try, each how that went."""

    def __init__(self, group: Group, directory: AnyPath, restore: Restore) -> None:
        self._group = group
        self._directory = directory
        self._restore = restore
        self._is_over = False

    def lead(self) -> str | None:
        try:
            found = newest_sound(self._directory, self._lead_to)
        except Exception as error:
            if not self._is_over:
                damaged = str(error) if isinstance(error, DataLossError) else None
                self._tell({"damaged": damaged, "error": described(error)})
            raise
        if found is None:
            self._tell({})
            return None
        return str(found[0])

    def follow(self) -> str | None:
        while "path" in (told := self._tell(None)):
            path = self._directory / told["path"]
            try:
                self._try(path)
            except (DataLossError, NotFoundError):
                continue
            return str(path)
        if told.get("damaged"):
            raise DataLossError(told["damaged"], path=str(self._directory))
        if "error" in told:
            raise PeerFailedError(self._group.chief, told["error"])
        return None

    def _lead_to(self, path: AnyPath) -> None:
        self._tell({"path": path.name})
        self._try(path)

    def _tell(self, what: dict[str, Any] | None) -> dict[str, Any]:
        """Say ``what``, if this is the chief; return what the chief says."""
        told = self._group.gather("restoring tries", json.dumps(what))
        said: dict[str, Any] = json.loads(told[self._group.chief])
        return said

    def _try(self, path: AnyPath) -> None:
        """Restore ``path`` on all ranks, or raise on all."""
        failure: Exception | None = None
        outcome = {}
        try:
            self._restore(path)
        except DataLossError as error:
            outcome = {"damaged": str(error)}
        except Exception as error:  # noqa: BLE001 - raised below, once the others know
            if isinstance(error, NotFoundError) and self._group.is_chief:
                outcome = {"gone": str(error)}  # another process has just removed it
            else:
                failure, outcome = error, {"error": described(error)}
        replies = [json.loads(it) for it in self._group.gather("restored", json.dumps(outcome))]
        self._is_over = any("error" in reply for reply in replies)
        if failure is not None:
            raise failure
        for rank, reply in enumerate(replies):
            if "error" in reply:
                raise PeerFailedError(rank, reply["error"])
        if "gone" in replies[self._group.chief]:
            raise NotFoundError(replies[self._group.chief]["gone"], path=str(path))
        for rank, reply in enumerate(replies):
            if "damaged" in reply:
                by = "" if rank == self._group.rank else f"rank {rank} says: "
                raise DataLossError(by + reply["damaged"], path=str(path))


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
