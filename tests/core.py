"""``--core``: the tests that what is installed can run, for those who change the core alone.

Without the option a package that is missing fails the tests, as it should.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

_MISSING = re.compile(
    r"No module named \\*'(\w+)|needs (\w+)(?:, which is not installed)?: pip install"
    r"|needs more than is installed: pip install (\w+)|No package metadata was found for (\w+)"
)


def is_beyond(path: Path) -> bool:
    """Whether the tests in ``path``, a module or a folder, import what is not installed."""
    files = [path / "conftest.py"] if path.is_dir() else [path]
    return any(_missing(file) for file in files if file.suffix == ".py" and file.exists())


def is_about_missing(text: str) -> bool:
    """Whether a failure, of a test or of a program that it ran, is that of a missing package."""
    return any(not _is_there(name) for names in _MISSING.findall(text) for name in names if name)


def engines() -> list[str]:
    """Return the engines whose frameworks are installed."""
    frameworks = {"python": "numpy", "jax": "jax", "torch": "torch"}
    return [engine for engine, framework in frameworks.items() if _is_there(framework)]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _skipped_if_missing((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _skipped_if_missing((yield))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if is_beyond(collection_path) else None


def _skipped_if_missing(report):
    text = report.longreprtext + report.capstdout + report.capstderr
    if report.failed and is_about_missing(text):
        report.outcome = "skipped"
        report.longrepr = (report.nodeid, 0, "a package is not installed")
    return report


@cache
def _missing(file: Path) -> bool:
    tree = ast.parse(file.read_text())
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return any(not _is_there(name.partition(".")[0]) for name in names)


@cache
def _is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
