"""Packages whose modules are imported when they are first used."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from runhooks.near_names import suggestion

_LINE = re.compile(r"^from (\S+) import \(?\s*(\w+) as \2\b", re.MULTILINE)


def lazily(
    package: str,
    modules: Sequence[str] = (),
    beside: Sequence[str] = (),
    elsewhere: Callable[[str], str] = lambda name: "",
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, the ``__dir__`` and the ``__all__`` of ``package``.

    Its names stand in its stub, the ``.pyi`` file: a line ``from module import name as name`` each.

    ``modules``: those that are attributes, but not in ``__all__``. ``beside``: modules to which the
    error of a missing name points, if they have it. ``elsewhere``: returns what else to say of it.
    """
    own = sys.modules[package]
    stub = Path(own.__file__ or "").with_suffix(".pyi").name
    text = (pkgutil.get_data(package, stub) or b"").decode()
    homes = {name: home for home, name in _LINE.findall(text)}

    def get(name: str) -> Any:
        home = homes.get(name)
        if home == package or name in modules:
            return import_module(f"{package}.{name}")
        if home is not None:
            value = getattr(import_module(home), name)
            setattr(own, name, value)
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint(name)}")

    def hint(name: str) -> str:
        if name.startswith("_"):
            return ""
        if found := [f"{it}.{name}" for it in beside if name in dir(import_module(it))]:
            return f": it is {' or '.join(found)}"
        return elsewhere(name) + suggestion(name, homes)

    def names() -> list[str]:
        return sorted({*vars(own), *homes, *modules})

    return get, names, sorted(homes.keys() - {*modules})
