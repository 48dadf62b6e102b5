"""Runs a suite of another library from a checkout, with names of runhooks put into its modules.

    make suites OF=tensorflow AT=path/to/checkout

Nothing of the other library is in this repository: its modules are those that are installed, its
tests those of the checkout, which is best of the same version. ``tests/suites/<library>.py`` says
what is put where, and lists each test that differs, with the reason. A test that fails and is not
in the list fails the command, and so does one in the list that passes.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

_LIMIT_SECS = 900  # of one file
_CHILD = "import sys; from tests.suites.__main__ import child; child(*sys.argv[1:])"


@dataclass(frozen=True)
class Suite:
    """The tests of a library that know names which runhooks has, too.

    Attributes:
        files: The files of tests, below the root of the checkout.
        names: Returns, by module of the library, what to put in the place of its names.
        packages: Packages of the library of which the checkout has modules that are not installed.
        not_ours: Patterns of tests, ``"<file>::<class>::<test>"``, that use nothing of runhooks,
            by the reason; they are not run.
        differences: The same of tests that fail on purpose.
        prepare: Called before the first test.
        environment: Variables of the environment of the tests.
    """

    files: tuple[str, ...]
    names: Callable[[], Mapping[str, Mapping[str, Any]]]
    packages: tuple[str, ...] = ()
    not_ours: Mapping[str, str] = field(default_factory=dict)
    differences: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[], None] = lambda: None
    environment: Mapping[str, str] = field(default_factory=dict)


def suite_of(library: str) -> Suite:
    """Return the suite of ``library``, which ``tests/suites/<library>.py`` defines."""
    suite: Suite = importlib.import_module(f"tests.suites.{library}").SUITE
    return suite


def reason(test: str, patterns: Mapping[str, str]) -> str | None:
    """Return what ``patterns`` say of ``test``."""
    return next((why for it, why in patterns.items() if fnmatchcase(test, it)), None)


class Outcomes:
    """A plugin of pytest that leaves out what is not ours, and keeps the outcome of each test."""

    def __init__(self, suite: Suite, file: str) -> None:
        self._suite = suite
        self.name = Path(file).name
        self.failures: dict[str, str] = {}
        self.counted: Counter[str] = Counter()

    def _test(self, nodeid: str) -> str:
        return f"{self.name}::{nodeid.partition('::')[2]}"

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        ours = [it for it in items if not reason(self._test(it.nodeid), self._suite.not_ours)]
        self.counted["left out"] = len(items) - len(ours)
        items[:] = ours

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failures[self.name] = str(report.longrepr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._test(report.nodeid)
        if report.failed:
            self.failures.setdefault(test, str(report.longrepr))
        elif report.when == "call" and test not in self.failures:
            self.counted[report.outcome] += 1


def run_file(suite: Suite, checkout: Path, file: str) -> dict[str, Any]:
    """Run one file in this process; return its failures and how many tests came out how."""
    for package in suite.packages:
        module = importlib.import_module(package)
        module.__path__.append(str(checkout.joinpath(*package.split("."))))
    for module_name, names in suite.names().items():
        module = importlib.import_module(module_name)
        for name, value in names.items():
            setattr(module, name, value)
    suite.prepare()
    outcomes = Outcomes(suite, file)
    options = ["-q", "--no-header", "--import-mode=importlib", "-p", "no:cacheprovider"]
    options += ["-c", os.devnull, f"--rootdir={checkout}", "-W", "ignore"]
    code = pytest.main([*options, str(checkout / file)], plugins=[outcomes])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        outcomes.failures.setdefault(outcomes.name, f"pytest ended with {code!r}")
    return {"failures": outcomes.failures, "counted": outcomes.counted}


def report(suite: Suite, results: Mapping[str, dict[str, Any]], *, whole: bool) -> bool:
    """Print what came out of the ``whole`` suite, or of a part; return whether it was expected."""
    failures = {test: text for it in results.values() for test, text in it["failures"].items()}
    unexpected = [test for test in failures if reason(test, suite.differences) is None]
    listed = suite.differences if whole else ()
    unused = [it for it in listed if not any(fnmatchcase(test, it) for test in failures)]
    for test in unexpected:
        print(f"\nFAILED {test}\n{failures[test]}")
    for test in unused:
        print(f"\nlisted as a difference, but none fails: {test}")
    print()
    total: Counter[str] = Counter()
    for file, result in results.items():
        counted = Counter(result["counted"], differ=len(result["failures"]))
        total += counted
        print(f"{file}: {_counts(counted)}")
    print(f"in all: {_counts(total)}; {len(unexpected)} of them not expected")
    return not unexpected and not unused


def _counts(counted: Counter[str]) -> str:
    names = ("passed", "differ", "skipped", "left out")
    return ", ".join(f"{counted[name]} {name}" for name in names)


def main(library: str, checkout: str, *files: str) -> int:
    """Run each file of a suite in a process of its own, or only ``files``."""
    suite = suite_of(library)
    results = {}
    for file in files or suite.files:
        print(file, flush=True)
        with TemporaryDirectory() as folder:
            result = Path(folder, "result.json")
            program = [sys.executable, "-c", _CHILD, library, checkout, file, str(result)]
            done = subprocess.run(
                program,
                env={**os.environ, **suite.environment},
                capture_output=True,
                text=True,
                timeout=_LIMIT_SECS,
                check=False,
            )
            if result.exists():
                results[file] = json.loads(result.read_text())
            else:
                output = f"it ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
                results[file] = {"failures": {file: output}, "counted": {}}
    return not report(suite, results, whole=not files)


def child(library: str, checkout: str, file: str, result: str) -> None:
    """Run one file, and write what came out to ``result``."""
    Path(result).write_text(json.dumps(run_file(suite_of(library), Path(checkout), file)))
    os._exit(0)  # threads that a test has left do not hold it up


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("give a library and a checkout of it: make suites OF=tensorflow AT=path")
    sys.exit(main(*sys.argv[1:]))
