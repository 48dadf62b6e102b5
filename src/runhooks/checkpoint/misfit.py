"""Says what to do about a checkpoint that does not fit the session that restores it."""

from __future__ import annotations

from collections.abc import Mapping

from runhooks.arrays.shards import Share
from runhooks.checkpoint.adapt import is_run_state
from runhooks.contract import RawSession, Snapshot


def ways_out(
    path: str, saved: Snapshot, sess: RawSession, *, rename: Mapping[str, str], keeps: bool
) -> str:
    """Return, for an error, how to train on without losing what the checkpoint ``path`` holds.

    Args:
        path: The checkpoint.
        saved: Its contents, which do not fit.
        sess: The session.
        rename: That of the saver; ``saved`` has the new names.
        keeps: Whether the saver has ``missing="keep"``.
    """
    try:
        present = sess.snapshot(share=Share(0, 1)).arrays
    except Exception:  # noqa: BLE001 - the error that is being explained matters more
        present = {}
    fitting = {
        name
        for name, array in saved.arrays.items()
        if name in present and present[name].shape == array.shape
    }
    weights = [name for name in saved.arrays if not is_run_state(name, saved.states)]
    partly = {_top(name) for name in {*weights, *present} - fitting}
    whole = [] if rename else sorted({_top(name) for name in weights} - partly)
    only = repr(whole[0] if len(whole) == 1 else whole) if whole else "[...]"
    way = (
        f"give another checkpoint_dir to start over, with Scaffold(init_from=InitFrom({path!r}, "
        f"only={only})) to begin with those of its weights"
    )
    if fitting == saved.arrays.keys() and not keeps:
        way += ", or Saver(missing='keep') to let what it lacks keep its initial values"
    return way


def _top(name: str) -> str:
    return name.partition("/")[0]
