"""``Engine``: all that runhooks knows of a framework, and how one is found by its name.

A framework is imported when a graph of its engine is made, never before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

if TYPE_CHECKING:
    from runhooks.graph.plan import Body
    from runhooks.graph.variable import Variable

#: From the session's variables and the values of ``body.given`` to the new values of
#: ``body.assigned``, and after these the values of ``body.fetches``, in one flat sequence.
Compiled = Callable[[Mapping["Variable", Any], Sequence[Any]], Sequence[Any]]


class Engine(Protocol):
    """What computes the graphs of one framework.

    A *value* is what a variable holds: a pytree of arrays. ``name`` arguments are for messages.
    """

    name: str

    def compile(self, body: Body) -> Compiled:
        """Make a function that computes ``body``.

        It leaves the variables alone when it raises; where a device fails in the middle, so that
        buffers it had taken over are gone, the error carries a note that says so.
        """
        ...

    def is_lost(self, error: BaseException) -> bool:
        """Whether ``error`` means that the session is lost and may be replaced."""
        ...

    def constant(self, value: Any) -> Any:
        """An array among the arguments of a call, put where the engine computes."""
        ...

    def initial(self, name: str, value: Any) -> Any:
        """A copy of ``value`` as a variable holds it. Raises TypeError for what is no array."""
        ...

    def conform(self, name: str, old: Any, new: Any) -> Any:
        """``new`` as a variable holds it; ValueError if it is not of the form of ``old``."""
        ...

    def add(self, old: Any, delta: Any) -> Any:
        """``old + delta``, leaf by leaf if ``delta`` is a pytree too."""
        ...

    def integer(self, value: int) -> Any:
        """An integer kept on the host, such as the global step, as the engine computes with it.

        Raises OverflowError if it is too large for that.
        """
        ...

    def random_key(self, seed: int, stream: int, runs: Any) -> Any:
        """The random key of the run before which ``runs``, as ``integer`` gives it, have drawn one.

        ``seed`` and ``stream`` are integers of 32 bits, without sign.
        """
        ...

    def wait(self, values: Sequence[Any]) -> None:
        """Return when the device has computed these values; raises what it failed of."""
        ...

    def leaves(self, value: Any) -> dict[str, Any]:
        """The leaves by path, such as ``"layers/0/kernel"``; a bare array has the path ``""``."""
        ...

    def with_leaves(self, value: Any, leaves: Sequence[Any]) -> Any:
        """``value`` with its leaves, in the order of ``leaves()``, replaced."""
        ...

    def to_host(
        self, leaves: Sequence[Any], into: Sequence[np.ndarray[Any, Any] | None] | None = None
    ) -> list[np.ndarray[Any, Any]]:
        """The leaves as NumPy arrays of their dtypes, in one batch; waits for the device.

        ``into``: one for each leaf. Whoever keeps the arrays then neither sees what later runs do
        nor makes these slower; those that have to be copied for that are copied into these, where
        they fit.
        """
        ...

    def host_form(self, leaf: Any) -> tuple[tuple[int, ...], Any]:
        """The shape and dtype that ``to_host`` gives ``leaf``; does not wait for the device."""
        ...

    def from_host(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        """``array``, of the host form of ``leaf``, as a leaf in its place."""
        ...

    def histogram(self, values: Any) -> Any:
        """What ``histogram_value`` is to be given of ``values``, made where they are."""
        ...

    def memory(self) -> dict[str, int]:
        """What devices say of their memory, such as ``{"cuda:0/allocated_bytes": 1024}``.

        Empty if none does. Does not wait for them.
        """
        ...

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path]:
        """Start the framework's profiler; return what ends it and says where the profile is.

        ``folder``: where to write it, it exists; ``step``: the first global step in it, for its
        name. Raises RuntimeError if a profiler is running already.
        """
        ...


_ENGINES = {"python": "numpy", "jax": "jax", "torch": "torch"}


def load_engine(name: str) -> Engine:
    """The engine of that name; ValueError if there is none, ImportError without its extra."""
    if name not in _ENGINES:
        raise ValueError(f"engine must be one of {sorted(_ENGINES)}, got {name!r}")
    require_framework(name)
    return cast(Engine, importlib.import_module(f"runhooks.engines.{name}").ENGINE)


def require_framework(engine: str) -> None:
    """Import the framework of ``engine``; ImportError, which says what to install, without it."""
    framework = _ENGINES.get(engine, engine)
    try:
        importlib.import_module(framework)
    except ImportError as error:
        raise ImportError(
            f"the {engine} engine needs {framework}: pip install 'runhooks[{engine}]'"
        ) from error
