"""``CallableRuns``: runs of a session as functions, ``make_callable``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from runhooks.graph import nest


class CallableRuns:
    """The part of a session that makes functions of its runs. A subclass provides ``run``."""

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: Literal[False] = False,
    ) -> Any:
        """Compute ``fetches`` and return their values in the same structure."""
        raise NotImplementedError

    def make_callable(
        self, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """Return a function that runs ``fetches``, as TensorFlow's sessions do.

        Each call of it is a call of ``run``, with all that this does.

        Args:
            fetches: As for ``run``.
            feed_list: A list or tuple of the keys of a feed_dict. The function takes their values,
                in this order. None: it takes none.
            accept_options: Whether it also takes ``options`` and ``run_metadata``, by keyword.

        Raises:
            TypeError: If ``feed_list`` is not a list or tuple. The function raises it for another
                number of values than ``feed_list`` has keys.
            ValueError: If a key is twice in ``feed_list``.
        """
        if feed_list is not None and not isinstance(feed_list, list | tuple):
            raise TypeError(f"feed_list must be a list or tuple of tensors, got {feed_list!r}")
        keys = tuple(feed_list or ())
        if len(dict.fromkeys(keys)) < len(keys):
            raise ValueError(f"feed_list must have each tensor once, got {list(keys)}")
        run = self.run
        # A list or dict of the caller may change.
        nest.structure_key(fetches)  # or the error would be of its levels
        fetches = nest.map_leaves(lambda leaf: leaf, fetches)

        def feeds(values: tuple[Any, ...]) -> dict[Any, Any] | None:
            if len(values) != len(keys):
                raise TypeError(
                    f"the function takes {len(keys)} values, of {list(keys)}, got {len(values)}"
                )
            return dict(zip(keys, values)) if keys else None  # noqa: B905 - compared above

        def call(*values: Any) -> Any:
            return run(fetches, feeds(values))

        def call_with_options(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
            return run(fetches, feeds(values), options, run_metadata)

        if accept_options:
            return call_with_options
        return call if keys else lambda: run(fetches)
