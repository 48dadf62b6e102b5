"""``warn_of_forgotten``: optimizers that a step uses and the graph does not have."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from torch.optim import Optimizer

from runhooks.engines.torch.objects import TorchObjects

_log = logging.getLogger("runhooks")


def warn_of_forgotten(step: str, fn: Callable[..., Any], objects: TorchObjects) -> None:
    """Log which optimizers ``fn`` uses by name that are not among ``objects``."""
    known = {id(it) for it in objects.optimizers().values()}
    for name, value in _used_by(fn):
        if isinstance(value, Optimizer) and id(value) not in known:
            known.add(id(value))
            _log.warning(
                "the step %r uses %r, an optimizer that is no object of the graph, so that "
                "checkpoints do not hold its state: give it too, such as %s=%s",
                *(step, name, name.rpartition(".")[2], name),
            )


def _used_by(fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield what ``fn`` refers to outside itself; of a method, the attributes of its object."""
    whole = inspect.unwrap(fn)
    with suppress(TypeError, ValueError):  # it is not written in Python, or not defined yet
        found = inspect.getclosurevars(whole)
        yield from {**found.globals, **found.nonlocals}.items()
    owner = getattr(whole, "__self__", None)
    yield from ((f"self.{name}", it) for name, it in getattr(owner, "__dict__", {}).items())
