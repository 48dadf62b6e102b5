"""The lowest versions that are declared are those that ``make test-lowest`` installs."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "tests" / "lowest").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Other packages ask for newer ones than runhooks does.
RAISED = {("jax", "matplotlib"), ("jax", "numpy")}


def requirements(extra):
    """Yield what ``extra`` requires, that of the extras in it included."""
    for line in EXTRAS[extra]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            for inner in requirement.extras:
                yield from requirements(inner)
        else:
            yield requirement


def release(version):
    return re.sub(r"(\.0)*$", "", Version(version).base_version)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_has_the_lowest_version_of_all_that_is_named(lock):
    lines = [Requirement(it) for it in lock.read_text().splitlines() if not it.startswith("#")]
    locked = {it.name: next(iter(it.specifier)).version for it in lines}
    named = [*map(Requirement, PROJECT["dependencies"]), *requirements(f"test-{lock.stem}")]
    assert named
    for requirement in named:
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        name = requirement.name.lower()
        if (lock.stem, name) not in RAISED:
            assert release(locked[name]) == release(bound.version), name


def test_extras_of_users_are_in_a_lock():
    locked = {it.name for lock in LOCKS for it in requirements(f"test-{lock.stem}")}
    # TensorFlow is there as tensorflow-cpu.
    users = {"cli", "jax"}
    assert {it.name for extra in users for it in requirements(extra)} <= locked
