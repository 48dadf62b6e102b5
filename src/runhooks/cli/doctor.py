"""``runhooks doctor``: what is installed here, what runs can use, and what is missing.

It needs none of the extras, so that it can say which are missing.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata

import google_crc32c

from runhooks.engines import EXTRAS_OF_ENGINES, framework_named
from runhooks.errors import described
from runhooks.stores import hidden
from runhooks.version import __version__

#: The extras of users; the others are for those who change runhooks.
EXTRAS = (*EXTRAS_OF_ENGINES, "cli", "mlflow", "stores", "wandb")

# What runhooks works with and has no extra for.
_COMPANIONS = (
    *("accelerate", "adlfs", "equinox", "flax", "gcsfs", "grain", "keras", "lightning"),
    *("obstore", "optax", "optuna", "pandas", "pyarrow", "pytorch-ignite", "s3fs"),
    *("safetensors", "tensorboard", "torchdata", "transformers"),
)
# What torchrun and JAX's launchers set.
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS")
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*(?:[(]?>=\s*([\d.]+))?")


def doctor(frameworks: list[str] | None = None) -> None:
    """Say what is installed, and what is missing or too old.

    The frameworks that are named (jax, torch, tensorflow) are imported, which takes seconds: it
    then says which devices they see. The status is 1 if something that is installed is too old, or
    one of these cannot be used.
    """
    named = frameworks or []
    for name in named:
        if name not in EXTRAS_OF_ENGINES:
            known = ", ".join(EXTRAS_OF_ENGINES)
            sys.exit(f"runhooks: doctor takes {known}, not {hidden(name)!r}")
    report = _Report()
    system = f"{platform.system()} {platform.machine()}"
    report.say(
        f"runhooks {__version__}, Python {platform.python_version()}, {system}, "
        f"{os.cpu_count()} processors"
    )
    for line in _required(report):
        report.say(f"  {line}")
    for extra in EXTRAS:
        _examine(extra, extra in named, report)
    found = [f"{name} {version}" for name in _COMPANIONS if (version := _version(name))]
    report.say(f"others: {', '.join(found) or 'none'}")
    ranks = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    report.say(f"ranks: {' '.join(ranks) or 'this process is alone'}")
    if not named:
        report.say(f"devices: runhooks doctor {' '.join(EXTRAS_OF_ENGINES)}")
    if report.faults:
        sys.exit(1)


class _Report:
    def __init__(self) -> None:
        self.faults = 0

    def say(self, line: str) -> None:
        sys.stdout.write(f"{line}\n")

    def fault(self, line: str) -> None:
        self.faults += 1
        self.say(f"  PROBLEM: {line}")


def _required(report: _Report) -> Iterator[str]:
    for name, least in _requirements(None):
        version = _version(name) or "not installed"
        slow = name == "google-crc32c" and google_crc32c.implementation != "c"
        yield f"{name} {version}" + (", in pure Python: event files are slow to write" * slow)
        _check_version(name, version, least, report)


def _examine(extra: str, is_named: bool, report: _Report) -> None:
    wanted = _requirements(extra)
    # A build for the CPU may be a package of another name, as that of TensorFlow is.
    versions = {name: _version(name) or _version(f"{name}-cpu") for name, _ in wanted}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        rest = [f"{name} {version}" for name, version in versions.items() if version]
        said = f"{', '.join(missing)} not installed" if rest else "not installed"
        report.say(f"{extra}: {said}: pip install 'runhooks[{extra}]'")
    else:
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        report.say(f"{extra}: {found}")
        for name, least in wanted:
            _check_version(name, versions[name], least, report)
    if is_named:
        _examine_framework(extra, report)


def _examine_framework(name: str, report: _Report) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        details = framework_named(name).details()
    except Exception as error:  # noqa: BLE001 - whatever a broken installation raises
        report.fault(f"{name} cannot be used: {described(error)}")
        return
    for title, text in details.items():
        report.say(f"  {title}: {text or 'none'}")


def _check_version(name: str, version: str | None, least: str | None, report: _Report) -> None:
    if version and least and _numbers(version) < _numbers(least):
        report.fault(f"{name} must be {least} or newer: pip install --upgrade {name}")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]


def _requirements(extra: str | None) -> list[tuple[str, str | None]]:
    """Return what ``extra`` requires, or what runhooks does, with the oldest version of each."""
    found = []
    for line in metadata.requires("runhooks") or ():
        requirement, _, marker = line.partition(";")
        named = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        match = _REQUIREMENT.match(requirement.strip())
        if (named.group(1) if named else None) == extra and match is not None:
            found.append((match.group(1), match.group(2)))
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
