"""``Scaffold``: gathers everything that a session needs before training can begin."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from runhooks import arguments
from runhooks.checkpoint import InitFrom, Saver
from runhooks.graph import get_default_graph
from runhooks.session.opening import opener_of
from runhooks.session.session import Session


class Scaffold:
    """What a session needs before training can begin, like ``tf.compat.v1.train.Scaffold``.

    An argument that is not given is looked up in the graph's collection of the same name when the
    scaffold is finalized. Variables need no ``init_op``: sessions start from their initial values.

    Args:
        init_op: Run if there is no checkpoint to restore.
        init_feed_dict: The values to feed to ``init_op``.
        init_fn: Called as ``init_fn(scaffold, session)`` after ``init_op``.
        ready_op: Run after everything else. It must return None, True or an empty array; anything
            else says why the session is not ready.
        ready_for_local_init_op: The same, run before ``local_init_op``.
        local_init_op: Run in every session, restored or not.
        summary_op: The summaries to save; ``merge_all()`` unless given.
        saver: Saves and restores checkpoints; a new ``Saver`` unless given.
        copy_from_scaffold: Another scaffold, which supplies the arguments that are not given.
        local_init_feed_dict: The values to feed to ``local_init_op``.
        init_from: Weights to start from if there is no checkpoint to restore, after ``init_op``: an
            ``InitFrom``, or a path from which to take everything.

    Raises:
        TypeError: For a scaffold, function, saver or ``InitFrom`` that is not one.
    """

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Scaffold, Session], Any] | None = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Saver | None = None,
        copy_from_scaffold: Any = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
        *,
        init_from: InitFrom | str | os.PathLike[str] | None = None,
    ) -> None:
        base = copy_from_scaffold
        kinds = (Scaffold, *opener_of(get_default_graph()).scaffolds)
        if base is not None and not isinstance(base, kinds):
            raise TypeError(f"copy_from_scaffold is not a Scaffold instance, got {base!r}")
        if init_fn is not None and not callable(init_fn):
            raise TypeError(f"init_fn must be a callable, got {init_fn!r}")
        if saver is not None and not callable(getattr(saver, "save", None)):
            raise TypeError(f"saver must be a Saver, got {saver!r}")
        self.init_op: Any = _given(init_op, base, "init_op")
        self.init_feed_dict: Any = _given(init_feed_dict, base, "init_feed_dict")
        self._given_init_fn: Callable[[Scaffold, Session], Any] | None = init_fn
        if init_fn is None and base is not None:
            self._given_init_fn = _init_fn_of(base)
        self.ready_op: Any = _given(ready_op, base, "ready_op")
        self.ready_for_local_init_op: Any = _given(
            ready_for_local_init_op, base, "ready_for_local_init_op"
        )
        self.local_init_op: Any = _given(local_init_op, base, "local_init_op")
        self.local_init_feed_dict: Any = _given(local_init_feed_dict, base, "local_init_feed_dict")
        self.summary_op: Any = _given(summary_op, base, "summary_op")
        self.saver: Any = _given(saver, base, "saver")
        self.init_from = _init_from(init_from)
        if init_from is None and isinstance(base, Scaffold):
            self.init_from = base.init_from

    def finalize(self) -> Scaffold:
        """Fill in what was not given, from the default graph, and make that graph final."""
        graph = get_default_graph()
        opener_of(graph).fill_scaffold(self)
        graph.finalize()
        return self

    @property
    def init_fn(self) -> Callable[[Any], Any] | None:
        """The given ``init_fn`` as a function of the session alone, or None."""
        return None if self._given_init_fn is None else partial(self._given_init_fn, self)

    @init_fn.setter
    def init_fn(self, init_fn: Callable[[Any], Any] | None) -> None:
        self._given_init_fn = None if init_fn is None else lambda _, session: init_fn(session)

    @staticmethod
    def get_or_default(
        arg_name: str, collection_key: str, default_constructor: Callable[[], Any]
    ) -> Any:
        """Return the item in the default graph's collection, or create and add it.

        Raises:
            RuntimeError: If the collection holds several.
        """
        graph = get_default_graph()
        found = graph.get_collection(collection_key)
        if len(found) > 1:
            raise RuntimeError(
                f"More than one item in the collection {collection_key!r}, which holds "
                f"{len(found)} items: give the scaffold the one to use, as {arg_name}=..."
            )
        if found:
            return found[0]
        made = default_constructor()
        if made is not None:
            graph.add_to_collection(collection_key, made)
        return made

    @staticmethod
    def default_local_init_op() -> Any:
        """Return the default ``local_init_op``; None except on a ``tf.Graph``."""
        return opener_of(get_default_graph()).default_local_init_op()


def _init_fn_of(scaffold: Any) -> Callable[[Scaffold, Session], Any] | None:
    if isinstance(scaffold, Scaffold):
        return scaffold._given_init_fn
    bound = scaffold.init_fn  # a framework's own scaffold hands itself to what it was given
    return None if bound is None else lambda _, session: bound(session)


def _init_from(given: Any) -> InitFrom | None:
    if given is None or isinstance(given, InitFrom):
        return given
    arguments.directory(init_from=given)
    return InitFrom(given)


def _given(value: Any, base: Any, name: str) -> Any:
    return value if value is not None or base is None else getattr(base, name)
