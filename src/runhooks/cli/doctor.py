"""``runhooks doctor``: what is installed, what is missing, and which devices there are."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata

from runhooks.engines import EXTRAS_OF_ENGINES, framework_named
from runhooks.errors import described
from runhooks.version import __version__

EXTRAS = (*EXTRAS_OF_ENGINES, "cli", "mlflow", "stores", "wandb")


def doctor(frameworks: list[str] | None = None) -> None:
    """Say what is installed, and what is missing.

    Frameworks that are named (jax, torch, tensorflow) are imported, which takes seconds, to say
    which devices they see. The status is 1 if one cannot be used.
    """
    named = frameworks or []
    if unknown := [name for name in named if name not in EXTRAS_OF_ENGINES]:
        known = ", ".join(EXTRAS_OF_ENGINES)
        sys.exit(f"runhooks: doctor takes {known}, not {unknown[0]!r}")
    system = f"{platform.system()} {platform.machine()}"
    _say(
        f"runhooks {__version__}, Python {platform.python_version()}, {system}, "
        f"{os.cpu_count()} processors"
    )
    for name in _required(""):
        _say(f"  {name} {_version(name) or 'not installed'}")
    sound = True
    for extra in EXTRAS:
        _examine(extra)
        sound &= extra not in named or _can_be_used(extra)
    if not named:
        _say(f"devices: runhooks doctor {' '.join(EXTRAS_OF_ENGINES)}")
    if not sound:
        sys.exit(1)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _examine(extra: str) -> None:
    # A CPU build may have its own name, as tensorflow-cpu.
    versions = {name: _version(name) or _version(f"{name}-cpu") for name in _required(extra)}
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    missing = ", ".join(name for name, version in versions.items() if version is None)
    if missing:
        said = f"{missing} not installed" if found else "not installed"
        _say(f"{extra}: {said}: pip install 'runhooks[{extra}]'")
    else:
        _say(f"{extra}: {found}")


def _can_be_used(name: str) -> bool:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        details = framework_named(name).details()
    except Exception as error:  # noqa: BLE001 - whatever a broken installation raises
        _say(f"  PROBLEM: {name} cannot be used: {described(error)}")
        return False
    for title, text in details.items():
        _say(f"  {title}: {text or 'none'}")
    return True


def _required(extra: str) -> list[str]:
    """Return what ``extra`` requires; for ``""``, what runhooks itself does."""
    found = []
    for line in metadata.requires("runhooks") or ():
        requirement, _, marker = line.partition(";")
        of = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        name = re.match(r"[\w.-]+", requirement)
        if name is not None and (of[1] if of else "") == extra:
            found.append(name[0])
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
