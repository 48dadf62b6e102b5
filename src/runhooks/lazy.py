"""``lazily``: names of a package whose modules are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

from runhooks.near_names import suggestion


def lazily(
    package: str,
    modules: Mapping[str, Iterable[str]] = MappingProxyType({}),
    others: Sequence[str] = (),
    beside: Sequence[str] = (),
    elsewhere: Callable[[str], str] = lambda name: "",
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of ``package``.

    Type checkers do not follow them: the package imports the names under ``TYPE_CHECKING``.

    Args:
        package: Its name.
        modules: Names by the module that defines them. Those of ``package`` itself are its
            modules.
        others: Modules that define the rest of ``package.__all__``. To find a name, they are
            imported one after the other.
        beside: Modules of the package, for whose names a missing one is told to look there.
        elsewhere: Returns what to say of a name that is missing, if not that.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if homes.get(name) == package:
            return import_module(f"{package}.{name}")
        own = sys.modules[package]
        homes_left = [homes[name]] if name in homes else others if name in own.__all__ else ()
        for module in map(import_module, homes_left):
            if hasattr(module, name):
                value = getattr(module, name)
                setattr(own, name, value)
                return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint(name)}")

    def hint(name: str) -> str:
        if name.startswith("_"):  # Python looks for many of these
            return ""
        if found := [f"{it}.{name}" for it in beside if name in dir(import_module(it))]:
            return f": it is {' or '.join(found)}"
        return elsewhere(name) + suggestion(name, sys.modules[package].__all__)

    def names() -> list[str]:
        it = sys.modules[package]
        return sorted({*vars(it), *homes, *it.__all__})

    return get, names
