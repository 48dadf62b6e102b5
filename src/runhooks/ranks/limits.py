"""``make_room``: the process that hosts the store may have as many connections as ranks need."""

from __future__ import annotations

import logging
import resource

_log = logging.getLogger("runhooks")

_OTHERS = 256  # files that a process has open besides


def make_room(connections: int, is_elsewhere: bool) -> None:
    """Let this process open ``connections`` and some files more, or warn of its limit.

    Args:
        connections: How many there will be to the store.
        is_elsewhere: Whether another process hosts the store, which has started this one, so that
            their limits are the same.
    """
    needed = connections + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if not is_elsewhere:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < needed:
        host = "the launcher, which hosts" if is_elsewhere else "this process, which may host"
        _log.warning(
            "%s the store of the ranks, may have %d files open, and the connections of all ranks "
            "need %d: start the training after `ulimit -n %d`, or ranks cannot connect",
            *(host, soft, needed, needed),
        )
