"""``Scaffold``: what a session needs before training can begin, gathered in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from runhooks.checkpoint import Saver
from runhooks.errors import FailedPreconditionError
from runhooks.graph import get_default_graph
from runhooks.session.launcher import launcher_of
from runhooks.session.session import Session


class Scaffold:
    """The parts of a session's start, as in ``tf.compat.v1.train.Scaffold``.

    What is not given is looked for in the graph's collection of the same name when the scaffold
    is finalized. ``init_op`` is run, fed ``init_feed_dict``, and ``init_fn(scaffold, session)``
    called, where there is no checkpoint to restore; ``local_init_op``, fed
    ``local_init_feed_dict``, is run in either case. ``ready_for_local_init_op`` and ``ready_op``
    are run before and after that, and must give None, true, or an empty array: what else they give
    is the reason why the session is not ready. ``summary_op`` is ``merge_all()`` and ``saver`` a
    new ``Saver`` unless given. ``copy_from_scaffold`` fills in what is not given from another
    scaffold.

    Variables need no ``init_op``: a session begins with their initial values.
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
    ) -> None:
        base = copy_from_scaffold
        kinds = (Scaffold, *launcher_of(get_default_graph()).scaffolds)
        if base is not None and not isinstance(base, kinds):
            raise TypeError(f"copy_from_scaffold is not a Scaffold instance, got {base!r}")
        if init_fn is not None and not callable(init_fn):
            raise TypeError(f"init_fn must be a callable, got {init_fn!r}")
        if saver is not None and not callable(getattr(saver, "save", None)):
            raise TypeError(f"saver must be a Saver, got {saver!r}")
        self.init_op: Any = _given(init_op, base, "init_op")
        self.init_feed_dict: Any = _given(init_feed_dict, base, "init_feed_dict")
        self._init_fn: Callable[[Scaffold, Session], Any] | None = init_fn
        if init_fn is None and base is not None:
            self._init_fn = _init_fn_of(base)
        self.ready_op: Any = _given(ready_op, base, "ready_op")
        self.ready_for_local_init_op: Any = _given(
            ready_for_local_init_op, base, "ready_for_local_init_op"
        )
        self.local_init_op: Any = _given(local_init_op, base, "local_init_op")
        self.local_init_feed_dict: Any = _given(local_init_feed_dict, base, "local_init_feed_dict")
        self.summary_op: Any = _given(summary_op, base, "summary_op")
        self.saver: Any = _given(saver, base, "saver")

    def finalize(self) -> Scaffold:
        """Fill in what was not given, in the default graph, and make that graph final."""
        graph = get_default_graph()
        launcher_of(graph).fill(self)
        graph.finalize()
        return self

    @property
    def init_fn(self) -> Callable[[Any], Any] | None:
        """The ``init_fn`` that was given, as a function of the session alone; or None."""
        return None if self._init_fn is None else partial(self._init_fn, self)

    @staticmethod
    def get_or_default(
        arg_name: str, collection_key: str, default_constructor: Callable[[], Any]
    ) -> Any:
        """What the default graph's collection holds, or what is made and put there, if not None.

        Raises RuntimeError if it holds several.
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
        """The ``local_init_op`` of a scaffold that is given none; None on our own engines."""
        return launcher_of(get_default_graph()).default_local_init_op()

    def initialise(self, session: Session) -> None:
        """Give a session that restored nothing what it begins with."""
        if self.init_op is not None:
            session.run(self.init_op, self.init_feed_dict)
        if self.init_fn is not None:
            self.init_fn(session)

    def make_ready(self, session: Session) -> None:
        """Run the local init op. Raises FailedPreconditionError if the session is not ready."""
        _check_ready(session, "ready_for_local_init_op", self.ready_for_local_init_op)
        if self.local_init_op is not None:
            session.run(self.local_init_op, self.local_init_feed_dict)
        _check_ready(session, "ready_op", self.ready_op)


def _init_fn_of(scaffold: Any) -> Callable[[Scaffold, Session], Any] | None:
    if isinstance(scaffold, Scaffold):
        return scaffold._init_fn
    bound = scaffold.init_fn  # a framework's own scaffold hands itself to what it was given
    return None if bound is None else lambda _, session: bound(session)


def _given(value: Any, base: Any, name: str) -> Any:
    return value if value is not None or base is None else getattr(base, name)


def _check_ready(session: Session, name: str, op: Any) -> None:
    if op is None:
        return
    answer = session.run(op)
    if answer is None:
        return
    lacking = np.asarray(answer)
    # What an engine compiles has one shape whatever it finds: it can say true, but no list.
    is_true = lacking.dtype == bool and lacking.shape == () and lacking
    if lacking.size and not is_true:
        raise FailedPreconditionError(
            f"the session is not ready: the scaffold's {name} gives {lacking.tolist()}"
        )
