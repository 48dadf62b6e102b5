import re
from contextlib import contextmanager as pythons
from dataclasses import dataclass
from pathlib import Path

import pytest

import runhooks as rh
from runhooks.contexts import contextmanager, hiding_errors

SOURCE = Path(rh.__file__).parent


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


def log_of(calls, exceptions=()):
    """A generator that records how its block ends, and swallows ``exceptions``."""
    calls.append("begin")
    try:
        yield "value"
    except exceptions:
        calls.append("swallowed")
    finally:
        calls.append("end")


@pytest.mark.parametrize("manager", [contextmanager, pythons])
def test_it_runs_around_the_block_as_pythons_does(manager):
    calls = []
    with manager(log_of)(calls) as value:
        calls.append(value)
    with manager(log_of)(calls, ValueError):
        raise ValueError
    with pytest.raises(KeyError, match="key"), manager(log_of)(calls, ValueError):
        raise KeyError("key")
    with pytest.raises(StopIteration), manager(log_of)(calls):
        raise StopIteration
    assert calls == [
        *("begin", "value", "end"),
        *("begin", "swallowed", "end"),
        *("begin", "end"),
        *("begin", "end"),
    ]


def test_another_error_of_the_generator_is_raised():
    @contextmanager
    def translate():
        try:
            yield
        except KeyError as error:
            raise ValueError("not there") from error

    with pytest.raises(ValueError, match="not there"), translate():
        raise KeyError


def test_a_generator_that_goes_on_is_an_error():
    @contextmanager
    def twice():
        try:
            yield
        except KeyError:
            yield

    with pytest.raises(RuntimeError), twice():
        raise KeyError


def test_an_error_that_cannot_be_changed_goes_through():
    with pytest.raises(FrozenError) as caught, contextmanager(log_of)([]):
        raise FrozenError(5)
    assert caught.value.code == 5
    assert len(caught.traceback) == 1  # no frame of the generator


def test_a_manager_of_another_library_hears_of_no_error():
    calls = []
    with pytest.raises(FrozenError), hiding_errors(pythons(log_of)(calls, FrozenError)) as value:
        calls.append(value)
        raise FrozenError(5)
    assert calls == ["begin", "value", "end"]


def test_no_module_uses_pythons():
    pattern = re.compile(r"from contextlib import .*\bcontextmanager\b|contextlib\.contextmanager")
    users = [path.name for path in SOURCE.rglob("*.py") if pattern.search(path.read_text())]
    assert users == []
