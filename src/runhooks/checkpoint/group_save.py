"""One checkpoint written by all ranks of a group: each its own files, the manifest by the chief.

Ranks meet three times in the group's store, never in a collective: when the draft is there, when
all have written, and when the chief has committed. An error of one is told to all at the next of
these, so a checkpoint is complete on all of them, or absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from runhooks.checkpoint.draft import Draft
from runhooks.checkpoint.drafts import joined_draft, new_draft
from runhooks.checkpoint.format import Checkpoint, Content, begun_manifest, described
from runhooks.checkpoint.manifest import FileDigest, Manifest, files_of
from runhooks.checkpoint.shard_index import ShardIndex
from runhooks.checkpoint.shard_writing import digests_of, together, write_rank
from runhooks.errors import DataLossError, PeerFailedError
from runhooks.errors import described as described_error
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
            saved = described(self._path, whole)
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
