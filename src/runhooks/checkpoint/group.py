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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from runhooks.checkpoint import attempts
from runhooks.checkpoint.files import place_of
from runhooks.checkpoint.format import (
    Checkpoint,
    Content,
    StoredCheckpoint,
    begun_manifest,
    checkpoint_of,
    content_of,
    encoded,
)
from runhooks.checkpoint.latest import newest_sound
from runhooks.checkpoint.lock import check_claim
from runhooks.checkpoint.manifest import FileDigest, Manifest, is_shard
from runhooks.checkpoint.shards import (
    TABLE,
    Written,
    blocks_to_write,
    digests_of,
    read_several,
    together,
)
from runhooks.checkpoint.states import encode
from runhooks.checkpoint.tensors import COMMIT, CheckpointFile
from runhooks.contract import Snapshot
from runhooks.errors import DataLossError, NotFoundError, PeerFailedError, described
from runhooks.errors import described as described_error
from runhooks.graph.objects import OBJECT_STATES, RANDOM_STATES, Resized
from runhooks.ranks import AloneGroup, Group
from runhooks.stores.interruption import interrupting
from runhooks.stores.path import AnyPath, StorePath

_MOST_AT_ONCE = 16


def write_checkpoint(path: AnyPath, snapshot: Snapshot, *, global_step: int | None) -> Checkpoint:
    """Save ``snapshot`` as the checkpoint ``path``, the first of a series, by this process alone.

    Raises as ``content_of`` and ``write_together`` do.
    """
    alone: dict[str, Any] = {"previous": None, "metrics": {}, "modes": {}, "replaces": False}
    content = content_of(snapshot)
    return write_together(AloneGroup(), path, content, global_step=global_step, **alone)


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
    """Save what all ranks of ``group`` have as the checkpoint ``path``, replacing one on a disk.

    All ranks call it, in threads if they like. ``global_step``, ``previous``, ``metrics`` and
    ``modes``, as for ``begun_manifest``, are the chief's. In a store, where several processes may
    save at a time, one that is there is replaced if ``replaces`` says that it is known.

    A process alone writes one file to a disk. In a store the file that completes a checkpoint is
    small: it is created on a condition, which holds for an object that is sent at once.

    Raises:
        FileExistsError: Another process has saved it.
        OSError: This rank cannot write its files.
        ValueError: What the ranks have does not make a whole. The chief alone raises it.
        PeerFailedError: Another rank has failed, or could not write its part.
        DeadlineExceededError: Ranks are missing; it names them.
    """
    manifest = begun_manifest(global_step, previous, metrics, modes)
    if group.size == 1 and isinstance(path, Path):
        check_free(path)
        attempts.commit(path, encoded(content.arrays, manifest.to_json(), content.states), False)
        return checkpoint_of(path, manifest)
    save = _GroupSave(group, path)
    try:
        of_chief = save.begin(content)
        save.write(content, global_step, of_chief)
        return save.commit(manifest, replaces)
    except BaseException:
        save.abandon()
        raise


def check_free(path: AnyPath) -> None:
    """Raise FileExistsError if something that is not a checkpoint is at ``path``, on a disk."""
    if isinstance(path, StorePath):
        return
    try:
        names = [it.name for it in path.iterdir()]
    except FileNotFoundError:
        return
    except NotADirectoryError:
        names = [""]
    if not all(it == COMMIT or is_shard(it) for it in names):
        raise FileExistsError(f"{path} exists and is not a checkpoint: save elsewhere")


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
        self._attempt: str | None = None
        self._may_be_complete = False
        self._written: list[Mapping[str, Any]] = []

    def begin(self, content: Content) -> Mapping[str, str] | None:
        """Begin the attempt; return the digests of the chief's arrays, None on the chief."""

        def act() -> Mapping[str, Any]:
            if not self._group.is_chief:
                return {}
            check_free(self._path)
            self._attempt = attempts.new_attempt()
            digests = digests_of(content.arrays) if self._group.size > 1 else {}
            return {"attempt": self._attempt, "digests": digests}

        begun = self._agreed("begins", act)[self._group.chief]
        self._attempt = begun["attempt"]
        return None if self._group.is_chief else begun["digests"]

    def write(
        self, content: Content, global_step: int | None, of_chief: Mapping[str, str] | None
    ) -> None:
        """Write the file of this rank; return when all ranks have."""

        def act() -> Mapping[str, Any]:
            blocks, about = blocks_to_write(content.arrays, of_chief)
            file = encoded(blocks, about, content.states)
            digest = attempts.write_file(self._path / self._name_of(self._group.rank), file)
            return {"step": global_step, "file": digest}

        self._written = self._agreed("is written", act)

    def commit(self, manifest: Manifest, replaces: bool) -> Checkpoint:
        """Let the chief complete the checkpoint; return it."""

        def act() -> Mapping[str, Any]:
            if not self._group.is_chief:
                return {}
            whole, table = self._whole(manifest)
            file = encoded({TABLE: table}, whole.to_json())
            if isinstance(self._path, StorePath):
                check_claim(self._path.parent)
            # Where the answer of a store is missing, the checkpoint may be complete.
            self._may_be_complete = isinstance(self._path, StorePath)
            try:
                attempts.commit(self._path, file, replaces)
            except FileExistsError:
                self._may_be_complete = False
                raise
            saved = checkpoint_of(self._path, whole)
            known = {"metrics": dict(saved.metrics), "modes": dict(saved.modes)}
            return saved._asdict() | known | {"path": None}

        done = self._agreed("is committed", act)[self._group.chief]
        return Checkpoint(**{**done, "path": self._path})

    def abandon(self) -> None:
        """Let the chief remove what is left of it."""
        if self._group.is_chief and self._attempt is not None and not self._may_be_complete:
            attempts.abandon(self._path, self._attempt)

    def _whole(self, manifest: Manifest) -> tuple[Manifest, Any]:
        """What all ranks have written, and the table of its blocks. ValueError if not a whole."""
        steps = [reply["step"] for reply in self._written]
        if len(set(steps)) > 1:
            raise ValueError(f"the ranks are at different global steps, {steps}: save in step")
        with ThreadPoolExecutor(_MOST_AT_ONCE, "runhooks-look") as threads, interrupting():
            written = list(threads.map(self._look_at, range(self._group.size)))
        arrays, table = together(written)
        files = {self._name_of(n): FileDigest(*it["file"]) for n, it in enumerate(self._written)}
        differing = tuple(sorted({name for it in written for name in it.own}))
        chief = self._group.chief
        whole = manifest._replace(chief=chief, files=files, arrays=arrays, differing=differing)
        return whole, table

    def _look_at(self, rank: int) -> Written:
        try:
            file = CheckpointFile(self._path / self._name_of(rank))
            if file.digest == (*self._written[rank]["file"],):
                return Written.of(file)
            error: object = "they are others"
        except (DataLossError, NotFoundError) as caught:
            error = caught
        raise ValueError(
            f"the files of rank {rank} are not in {self._path.parent}: checkpoints must be on a "
            f"file system that all ranks share ({error})"
        )

    def _name_of(self, rank: int) -> str:
        return f"{self._attempt}-{rank}.safetensors"

    def _agreed(self, what: str, act: Callable[[], Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return agreed(self._group, f"{self._name} {what}", act)


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
    is asked of them.

    Raises as ``read_checkpoint``.
    """
    stored = StoredCheckpoint(path)
    manifest = stored.manifest
    if manifest.ranks == group.size:
        found, kept = stored.arrays(group.rank), stored.states(group.rank)
        if group.size == 1 and not in_parts:
            return Snapshot(dict(read_several(found)), kept, is_given=True)
        return Snapshot(dict(found), kept)
    snapshot = Snapshot(dict(stored.arrays()), stored.states())
    differing = frozenset(it for it in manifest.differing if not _is_random(it))
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
