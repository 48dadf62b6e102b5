"""All ranks of a group write one checkpoint, and restore the same one.

They meet in the group's store, never in a collective.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import google_crc32c
import numpy as np

from runhooks.checkpoint import attempts
from runhooks.checkpoint.files import place_of, printable, read_into, sizes_below
from runhooks.checkpoint.format import (
    NAME,
    Checkpoint,
    Content,
    StoredCheckpoint,
    begun_manifest,
    checkpoint_of,
    content_of,
    encoded,
    find_checkpoints,
)
from runhooks.checkpoint.lock import check_claim
from runhooks.checkpoint.manifest import FileDigest, Manifest, is_shard
from runhooks.checkpoint.shards import (
    TABLE,
    Listing,
    Rows,
    StoredArray,
    blocks_to_write,
    digests_of,
    read_several,
    rows_of,
    together,
)
from runhooks.checkpoint.states import encode
from runhooks.checkpoint.tensors import COMMIT, CheckpointFile
from runhooks.contract import Snapshot
from runhooks.errors import DataLossError, NotFoundError, PeerFailedError, described
from runhooks.graph.base import OBJECT_STATES, RANDOM_STATES, Resized
from runhooks.graph.epoch_means import EPOCH_SUMS, GLOBAL_SUMS
from runhooks.ranks import AloneGroup, Group
from runhooks.stores.interruption import reading_threads
from runhooks.stores.path import AnyPath, StorePath

_log = logging.getLogger("runhooks")

AnyResult = TypeVar("AnyResult")

_MOST_NEAR = 8  # files that are searched before the table


def agreed(group: Group, name: str, act: Callable[[], Any], *, restores: bool = False) -> Any:
    """Return the JSON that ``act`` returned on the chief; raise on all if it raised on one.

    That one raises its own error, the others PeerFailedError. If it ``restores``, DataLossError of
    any and NotFoundError of the chief are raised by all.
    """
    return _met(group, name, act, lambda contents, chief: contents[chief], restores)


def collected(group: Group, name: str, act: Callable[[], Any]) -> list[Any]:
    """Return, on the chief alone, what ``act`` returned on each rank; else as ``agreed``."""
    if group.size == 1:
        return [act()]

    def keep(contents: list[Any], chief: int) -> None:
        group.set(f"collected/{name}", json.dumps(contents))

    _met(group, name, act, keep)
    if not group.is_chief:
        return []
    found = group.get(f"collected/{name}")
    group.delete(f"collected/{name}")
    assert found is not None
    return list(json.loads(found))


def _met(
    group: Group,
    name: str,
    act: Callable[[], Any],
    conclude: Callable[[list[Any], int], Any],
    restores: bool = False,
) -> Any:
    """What ``conclude``, on rank 0, makes of what all have returned, and of the chief."""
    if group.size == 1:
        return conclude([act()], 0)
    failure: Exception | None = None
    try:
        end, content = "done", act()
    except Exception as error:  # noqa: BLE001 - raised below, once the others know
        failure = error
        end, *content = _end_with(error, group, restores)

    def worst_of(values: Sequence[str]) -> str:
        replies = [json.loads(it) for it in values]
        ends = [it for it, _ in replies]
        worst = max(ends, key=_ENDS.index)
        if worst == "done":
            return json.dumps([worst, 0, conclude([it for _, it in replies], group.chief)])
        rank = ends.index(worst)
        return json.dumps([worst, rank, replies[rank][1]])

    try:
        worst, rank, found = json.loads(group.agree(name, json.dumps([end, content]), worst_of))
    except Exception as error:
        if failure is None:
            raise
        raise failure from error
    if worst == "done":
        return found
    if failure is not None and end == worst:
        raise failure
    text, path = found
    if worst == "damaged":
        raise DataLossError(f"rank {rank} says: {text}", path=path)
    raise NotFoundError(text, path=path) if worst == "gone" else PeerFailedError(rank, text)


# Of all ranks' ends, the last in this order counts.
_ENDS = ("done", "damaged", "gone", "error")


def _end_with(error: Exception, group: Group, restores: bool) -> tuple[str, str, str | None]:
    if restores and isinstance(error, DataLossError):
        return "damaged", str(error), error.path
    if restores and isinstance(error, NotFoundError) and group.is_chief:
        return "gone", str(error), error.path
    group.error = error
    return "error", described(error), None


def write_checkpoint(path: AnyPath, snapshot: Snapshot, *, global_step: int | None) -> Checkpoint:
    """Save a checkpoint by this process alone."""
    content = content_of(snapshot)
    return write_together(AloneGroup(), path, content, begun_manifest(global_step))


def write_together(
    group: Group, path: AnyPath, content: Content, manifest: Manifest, replaces: bool = False
) -> Checkpoint:
    """Save what all ranks have as one checkpoint, with the chief's manifest.

    ``replaces``: whether one that is there is known; in a store, FileExistsError is raised if not.
    """
    # In a store, the last file must be small: it is created on a condition, in one request.
    if group.size > 1 or isinstance(path, StorePath):
        return _GroupSave(group, path).run(content, manifest, replaces)
    check_free(path)
    attempts.commit(path, encoded(content.arrays, manifest.to_json(), content.states), replaces)
    return checkpoint_of(path, manifest)


def check_free(path: AnyPath) -> None:
    """Raise FileExistsError if something other than a checkpoint is there."""
    if isinstance(path, StorePath):
        return
    try:
        names = [it.name for it in path.iterdir()]
    except FileNotFoundError:
        return
    except NotADirectoryError:
        pass
    else:
        if COMMIT in names or NAME.fullmatch(path.name) or all(map(is_shard, names)):
            return
    raise FileExistsError(f"{path} exists and is not a checkpoint: save elsewhere")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class _GroupSave:
    def __init__(self, group: Group, path: AnyPath) -> None:
        self._group = group
        self._path = path
        # Several savers may be at work in threads.
        self._name = f"checkpoint {path.parent.name}/{path.name.rpartition('-')[0] or path.name}"
        self._attempt = self._shown = ""
        self._may_be_complete = False

    def run(self, content: Content, manifest: Manifest, replaces: bool) -> Checkpoint:
        try:
            held = self._begin_together(content)
            step, what = manifest.global_step, f"{self._name} is written"
            written = collected(self._group, what, lambda: self._write(content, step, held))
            if self._shown and self._group.is_chief:
                self._group.delete(self._shown)
            done = self._agreed("is committed", lambda: self._commit(manifest, written, replaces))
            return checkpoint_of(self._path, Manifest.from_json(done))
        except BaseException:
            if self._group.is_chief and self._attempt and not self._may_be_complete:
                attempts.abandon(self._path, self._attempt)
            raise

    def _begin_together(self, content: Content) -> Container[str] | None:
        """Return ``held`` for ``blocks_to_write``."""
        group, digests = self._group, dict[str, str]()

        def begin() -> list[str]:
            attempt = ""
            if group.is_chief:
                check_free(self._path)
                attempt = attempts.new_attempt()
            if group.size > 1:
                digests.update(digests_of(content.arrays))
            return [attempt, _digest(digests)]

        def show() -> None:
            if group.is_chief:
                group.set(self._shown, json.dumps(digests))

        def compare(contents: list[Any], chief: int) -> Mapping[str, Any]:
            attempt, digest = contents[chief]
            differ = any(it != digest for _, it in contents)
            return {"attempt": attempt, "digest": digest, "differ": differ}

        begun = _met(group, f"{self._name} begins", begin, compare)
        self._attempt = begun["attempt"]
        if begun["differ"]:
            self._shown = f"digests {self._attempt}"
            self._agreed("differs", show)
        if group.is_chief:
            return None
        if _digest(digests) == begun["digest"]:
            return digests
        theirs = json.loads(group.get(self._shown) or "{}")
        return {name for name, digest in digests.items() if theirs.get(name) == digest}

    def _write(
        self, content: Content, step: int | None, held: Container[str] | None
    ) -> Mapping[str, Any]:
        blocks, listing = blocks_to_write(content.arrays, held)
        about = listing.to_json()
        file = encoded(blocks, about, content.states)
        table = None
        if TABLE in blocks:
            rows = blocks[TABLE].astype("<i8").tobytes()
            table = [file.start_of(TABLE), *blocks[TABLE].shape, int(google_crc32c.value(rows))]
        path = self._path / self._file_of(self._group.rank)
        written = attempts.write_file(path, file)
        return {"step": step, "file": written, "listing": _digest(about), "table": table}

    def _commit(
        self, manifest: Manifest, written: Sequence[Mapping[str, Any]], replaces: bool
    ) -> Mapping[str, Any]:
        if not self._group.is_chief:
            return {}
        whole, table = self._whole(manifest, written)
        file = encoded({TABLE: table}, whole.to_json())
        if isinstance(self._path, StorePath):
            check_claim(self._path.parent)
            self._may_be_complete = True  # even if the answer of the store is lost
        try:
            attempts.commit(self._path, file, replaces)
        except FileExistsError:
            self._may_be_complete = False
            raise
        self._may_be_complete = True
        return manifest.to_json()

    def _whole(
        self, manifest: Manifest, written: Sequence[Mapping[str, Any]]
    ) -> tuple[Manifest, Any]:
        steps = [it["step"] for it in written]
        if len(set(steps)) > 1:
            raise ValueError(f"the ranks are at different global steps, {steps}: save in step")
        digests = [FileDigest(*it["file"]) for it in written]
        files = {self._file_of(rank): digest for rank, digest in enumerate(digests)}
        size_of = sizes_below(self._path)
        # Equal listings are read once.
        first = {it["listing"]: rank for rank, it in reversed([*enumerate(written)])}
        with reading_threads() as threads:
            read = threads.map(
                self._listing, first.values(), map(digests.__getitem__, first.values())
            )
            tables = [it["table"] for it in written]
            rows = list(
                threads.map(partial(self._rows, size_of), range(len(files)), digests, tables)
            )
            listings = dict(zip(first, read, strict=True))
        arrays, table = together(
            [(listings[it["listing"]], of_rank) for it, of_rank in zip(written, rows, strict=True)]
        )
        differing = tuple(sorted({name for it in listings.values() for name in it.own}))
        chief = self._group.chief
        whole = manifest._replace(chief=chief, files=files, arrays=arrays, differing=differing)
        return whole, table

    def _listing(self, rank: int, expected: FileDigest) -> Listing:
        with self._finding(rank):
            file = CheckpointFile(self._path / self._file_of(rank))
            if file.digest != expected:
                raise ValueError("they are others")
            return Listing.of(file)

    def _rows(
        self,
        size_of: Callable[[str], int],
        rank: int,
        expected: FileDigest,
        table: tuple[int, int, int, int] | None,
    ) -> Rows:
        name = self._file_of(rank)
        with self._finding(rank):
            if size_of(name) != expected.size:
                raise ValueError("they are others")
            if table is None:
                return rows_of([])
            start, count, width, crc = table
            data = np.empty(8 * count * width, np.uint8)
            read_into(self._path / name, start, data)
            if google_crc32c.value(data) != crc:
                raise ValueError("they are others")
            return data.view("<i8").reshape(count, width)

    @contextmanager
    def _finding(self, rank: int) -> Iterator[None]:
        try:
            yield
        except (DataLossError, NotFoundError, FileNotFoundError, ValueError) as error:
            raise ValueError(
                f"the files of rank {rank} are not in {self._path.parent}: checkpoints must be on "
                f"a file system that all ranks share ({error})"
            ) from None

    def _file_of(self, rank: int) -> str:
        return f"{self._attempt}-{rank}.safetensors"

    def _agreed(self, what: str, act: Callable[[], Any]) -> Any:
        return agreed(self._group, f"{self._name} {what}", act)


def newest_sound(
    group: Group, checkpoint_dir: str | os.PathLike[str], read: Callable[[AnyPath], AnyResult]
) -> tuple[AnyPath, AnyResult] | None:
    """Return the newest checkpoint that no rank finds damaged, and what ``read`` makes of it.

    A damaged one is skipped with one warning; if all are, DataLossError is raised.
    """
    directory = place_of(checkpoint_dir)
    tried: set[str] = set()
    damaged: list[DataLossError] = []
    results: list[AnyResult] = []

    def newest() -> str | None:
        names = [it.path.name for it in find_checkpoints(directory)] if group.is_chief else []
        return next((name for name in reversed(names) if name not in tried), None)

    def keep(path: AnyPath) -> None:
        results.append(read(path))

    while name := agreed(group, "restoring tries", newest):
        tried.add(name)
        path = directory / name
        try:
            agreed(group, "restored", partial(keep, path), restores=True)
        except NotFoundError:
            continue
        except DataLossError as error:
            if group.is_chief:
                _log.warning("%s; trying the one before it", error)
            damaged.append(error)
        else:
            return path, results[-1]
    if damaged:
        raise DataLossError(
            f"none of the {len(damaged)} checkpoints in {printable(directory)} is sound; the "
            f"newest: {damaged[0]}. Move them aside to start over",
            path=str(directory),
        ) from damaged[0]
    return None


def read_for(group: Group, path: AnyPath, in_parts: bool = False) -> Snapshot:
    """Return what a checkpoint holds for this rank.

    If as many ranks have saved it, that is what the rank had; if not, states are the chief's, and
    ``resized`` says so. With several ranks, or ``in_parts``, arrays are ``ArraySource`` objects.
    """
    stored = StoredCheckpoint(path, in_parts=group.size > 1)
    manifest = stored.manifest
    saved, size = manifest.ranks, group.size
    # These have what this rank needs of evenly cut arrays, and of the chief's.
    first, last = group.rank * saved // size, -(-(group.rank + 1) * saved // size)
    near = list(dict.fromkeys([*range(first, last), manifest.chief]))
    if len(near) > _MOST_NEAR:
        near = []
    if saved == size:
        found, kept = stored.arrays(group.rank, near), stored.states(group.rank)
        if group.size == 1 and not in_parts:
            own = dict(read_several(found))
            return Snapshot(own, kept, is_given=True, metrics=manifest.metrics)
        return Snapshot(dict(found), kept, metrics=manifest.metrics)
    arrays = dict(stored.arrays(None, near))
    each = (it for it in arrays if it.endswith(EPOCH_SUMS) and not it.endswith(GLOBAL_SUMS))
    sums = {name: arrays[name] for name in each}
    arrays.update(_added_up(stored, sums, group.rank))
    snapshot = Snapshot(arrays, stored.states(), metrics=manifest.metrics)
    differing = frozenset(it for it in manifest.differing if it not in sums and not _is_random(it))
    if differing and group.is_chief:
        _log.warning(
            "%s was saved by %d ranks, which differed in %s: all ranks get the chief's",
            *(path, manifest.ranks, sorted(differing)[:5]),
        )
    if group.is_chief:
        _log.info(
            "the checkpoint of step %s was saved by %d ranks, and there are %d: arrays are cut "
            "anew, and states derive from the chief's",
            *(manifest.global_step, manifest.ranks, group.size),
        )
    seed = _seed(snapshot, manifest.global_step)
    resized = Resized(manifest.ranks, group.size, group.rank, seed, differing)
    return snapshot._replace(resized=resized)


def _added_up(
    stored: StoredCheckpoint, chiefs: Mapping[str, StoredArray], rank: int
) -> Mapping[str, Any]:
    """The sums of all ranks on rank 0; zeros on the others."""
    if not chiefs or rank:
        return {name: np.zeros(it.shape, it.dtype) for name, it in chiefs.items()}
    if stored.manifest.ranks == 1:
        return chiefs
    with reading_threads() as threads:
        saved = list(threads.map(stored.own_arrays, range(stored.manifest.ranks)))
    each = {name: [own.get(name, it) for own in saved] for name, it in chiefs.items()}
    return {name: np.sum([*map(np.asarray, parts)], axis=0) for name, parts in each.items()}


def _seed(saved: Snapshot, step: int | None) -> int:
    state = saved.states.get(OBJECT_STATES + RANDOM_STATES)
    encoded = encode({"step": step, RANDOM_STATES: state})
    found = hashlib.sha256(encoded.text)
    for values in encoded.arrays.values():
        found.update(values.data)
    for name in sorted(filter(_is_random, saved.arrays)):
        found.update(np.ascontiguousarray(saved.arrays[name]).tobytes())
    return int.from_bytes(found.digest()[:8], "little")


def _is_random(name: str) -> bool:
    return name.partition("/")[0] == RANDOM_STATES
