"""``Role``: what one process does in a training that several may share."""

from __future__ import annotations

from typing import Any, NamedTuple


class Role(NamedTuple):
    """A chief restores or initialises; whoever is none waits until that is done.

    ``master`` and ``config``: for TensorFlow's sessions. ``is_chief``: whether it restores or
    initialises; ``has_chief_hooks``: whether it takes the hooks that are for the chief alone.
    ``summaries``, ``checkpoints``: the folder, in the directory that the program gives for them, in
    which it writes them; "": that directory itself; None: it writes none. ``in_step``: whether all
    processes must save in the same steps, so that none may go by the clock.
    """

    master: str
    config: Any
    is_chief: bool
    has_chief_hooks: bool
    summaries: str | None
    checkpoints: str | None
    in_step: bool = False


def alone(master: str, is_chief: bool, config: Any) -> Role:
    """The role of a process that knows of no others but what its program says: a chief does all."""
    folder = "" if is_chief else None
    return Role(master, config, is_chief, is_chief, folder, folder)
