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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from runhooks.graph.objects import OBJECT_STATES, RANDOM_STATES, Resized
from runhooks.ranks import AloneGroup, Group
from runhooks.stores.interruption import interrupting
from runhooks.stores.path import AnyPath, StorePath

_MOST_AT_ONCE = 16


def write_checkpoint(path: AnyPath, snapshot: Snapshot, *, global_step: int | None) -> Checkpoint:
    """Save ``snapshot`` as the checkpoint ``path``, the first of a series, by this process alone.

    Raises as ``content_of`` and ``write_together`` do.
    """
    content = content_of(snapshot)
    return write_together(AloneGroup(), path, content, begun_manifest(global_step))


def write_together(
    group: Group, path: AnyPath, content: Content, manifest: Manifest, replaces: bool = False
) -> Checkpoint:
    """Save what all ranks of ``group`` have as the checkpoint ``path``, replacing one on a disk.

    All ranks call it, in threads if they like.

    A process alone writes one file to a disk. In a store the file that completes a checkpoint is
    small: it is created on a condition, which holds for an object that is sent at once.

    Args:
        group: The group.
        path: The folder of the checkpoint.
        content: What this rank has.
        manifest: What ``begun_manifest`` returned; that of the chief counts.
        replaces: Whether one that is there is known. One that is not is left as it is in a store,
            where several processes may save at a time.

    Raises:
        FileExistsError: Another process has saved it.
        OSError: This rank cannot write its files.
        ValueError: What the ranks have does not make a whole. The chief alone raises it.
        PeerFailedError: Another rank has failed, or could not write its part.
        DeadlineExceededError: Ranks are missing; it names them.
    """
    if group.size > 1 or isinstance(path, StorePath):
        return _GroupSave(group, path).run(content, manifest, replaces)
    check_free(path)
    attempts.commit(path, encoded(content.arrays, manifest.to_json(), content.states), replaces)
    return checkpoint_of(path, manifest)


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


class _GroupSave:
    """One save by all ranks."""

    def __init__(self, group: Group, path: AnyPath) -> None:
        self._group = group
        self._path = path
        # Several savers may be at work in threads: each meets the others under a name of its own.
        self._name = f"checkpoint {path.parent.name}/{path.name.rpartition('-')[0] or path.name}"
        self._attempt = ""
        self._may_be_complete = False

    def run(self, content: Content, manifest: Manifest, replaces: bool) -> Checkpoint:
        chief = self._group.chief
        try:
            begun = self._agreed("begins", lambda: self._begin(content))[chief]
            self._attempt = begun["attempt"]
            of_chief = None if self._group.is_chief else begun["digests"]
            step = manifest.global_step
            written = self._agreed("is written", lambda: self._write(content, step, of_chief))
            done = self._agreed("is committed", lambda: self._commit(manifest, written, replaces))
            return checkpoint_of(self._path, Manifest.from_json(done[chief]))
        except BaseException:
            if self._group.is_chief and self._attempt and not self._may_be_complete:
                attempts.abandon(self._path, self._attempt)
            raise

    def _begin(self, content: Content) -> Mapping[str, Any]:
        if not self._group.is_chief:
            return {}
        check_free(self._path)
        digests = digests_of(content.arrays) if self._group.size > 1 else {}
        return {"attempt": attempts.new_attempt(), "digests": digests}

    def _write(
        self, content: Content, step: int | None, of_chief: Mapping[str, str] | None
    ) -> Mapping[str, Any]:
        blocks, about = blocks_to_write(content.arrays, of_chief)
        file = encoded(blocks, about, content.states)
        path = self._path / self._file_of(self._group.rank)
        return {"step": step, "file": attempts.write_file(path, file)}

    def _commit(
        self, manifest: Manifest, written: Sequence[Mapping[str, Any]], replaces: bool
    ) -> Mapping[str, Any]:
        if not self._group.is_chief:
            return {}
        whole, table = self._whole(manifest, written)
        file = encoded({TABLE: table}, whole.to_json())
        if isinstance(self._path, StorePath):
            check_claim(self._path.parent)
            # Where the answer of the store is missing, the checkpoint may be complete.
            self._may_be_complete = True
        try:
            attempts.commit(self._path, file, replaces)
        except FileExistsError:
            self._may_be_complete = False
            raise
        return manifest.to_json()

    def _whole(
        self, manifest: Manifest, written: Sequence[Mapping[str, Any]]
    ) -> tuple[Manifest, Any]:
        """What all ranks have written, and the table of its blocks. ValueError if not a whole."""
        steps = [it["step"] for it in written]
        if len(set(steps)) > 1:
            raise ValueError(f"the ranks are at different global steps, {steps}: save in step")
        files = {self._file_of(n): FileDigest(*it["file"]) for n, it in enumerate(written)}
        with ThreadPoolExecutor(_MOST_AT_ONCE, "runhooks-look") as threads, interrupting():
            found = list(threads.map(self._look_at, range(len(files)), files.values()))
        arrays, table = together(found)
        differing = tuple(sorted({name for it in found for name in it.own}))
        chief = self._group.chief
        whole = manifest._replace(chief=chief, files=files, arrays=arrays, differing=differing)
        return whole, table

    def _look_at(self, rank: int, expected: FileDigest) -> Written:
        try:
            file = CheckpointFile(self._path / self._file_of(rank))
            if file.digest == expected:
                return Written.of(file)
            error: object = "they are others"
        except (DataLossError, NotFoundError) as caught:
            error = caught
        raise ValueError(
            f"the files of rank {rank} are not in {self._path.parent}: checkpoints must be on a "
            f"file system that all ranks share ({error})"
        )

    def _file_of(self, rank: int) -> str:
        return f"{self._attempt}-{rank}.safetensors"

    def _agreed(self, what: str, act: Callable[[], Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """What ``act`` returned on each rank; raises on all ranks if it raised on one."""
        failure: Exception | None = None
        told: dict[str, Any] = {}
        try:
            told["done"] = act()
        except Exception as error:  # noqa: BLE001 - raised below, once the others know
            failure, told["error"] = error, described(error)
            self._group.error = failure
        try:
            gathered = self._group.gather(f"{self._name} {what}", json.dumps(told))
            replies = [json.loads(reply) for reply in gathered]
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
