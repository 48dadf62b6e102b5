"""What most tests stand on: a graph of each engine, a small model, an input that can fail."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest

import runhooks as rh

# A shell that starts the tests in the background lets them, and all they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["python", "jax", "torch"])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine; a test that takes it runs once on each."""
    return request.param


@pytest.fixture
def graph(engine: str) -> Iterator[rh.Graph]:
    """A graph of each engine, the default graph of the test."""
    graph = rh.Graph(engine=engine)
    with graph.as_default():
        yield graph


class Faults:
    """The elements of an input: 0, 1, 2, ... ``fail(error)`` makes the next draw raise it."""

    def __init__(self) -> None:
        self.drawn = 0
        self._next_error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self._next_error = error

    def __iter__(self) -> Faults:
        return self

    def __next__(self) -> int:
        if self._next_error is not None:
            error, self._next_error = self._next_error, None
            raise error
        self.drawn += 1
        return self.drawn - 1


class Model(NamedTuple):
    """One step adds 1 to both weights and to the global step; ``loss`` is the sum of the weights.

    ``train_op`` also draws from an input; ``faults.fail(error)`` makes the next step raise.
    """

    weights: rh.Variable
    loss: rh.Tensor
    global_step: rh.Variable
    train_op: rh.Operation
    faults: Faults


def _build_model() -> Model:
    faults = Faults()
    weights = rh.Variable(np.zeros(2, np.float32), name="weights")
    loss = rh.call(lambda w: w.sum(), weights, name="loss")
    global_step = rh.train.get_or_create_global_step()
    train_op = rh.group(
        rh.inputs(faults, name="batch"),
        weights.assign_add(np.ones(2, np.float32)),
        global_step.assign_add(1),
        name="train_op",
    )
    return Model(weights, loss, global_step, train_op, faults)


@pytest.fixture
def build_model() -> Callable[[], Model]:
    """Builds the model in the default graph: for tests that make several graphs of it."""
    return _build_model


@pytest.fixture
def model(graph: rh.Graph) -> Model:
    """The model in the default graph of the test."""
    return _build_model()


class HeldDisk:
    """Files get to the disk when ``release`` is called; ``fail(error)``: that comes of it.

    It is held from the beginning.
    """

    def __init__(self) -> None:
        self._fsync = os.fsync
        self._released = threading.Event()
        self._error: OSError | None = None

    def hold(self) -> None:
        self._released.clear()

    def release(self) -> None:
        self._error = None
        self._released.set()

    def fail(self, error: OSError) -> None:
        self._error = error
        self._released.set()

    def fsync(self, descriptor: int) -> None:
        assert self._released.wait(60), "nobody has released the disk"
        if self._error is not None:
            raise self._error
        self._fsync(descriptor)


@pytest.fixture
def held_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldDisk]:
    """A disk that keeps all who write to it waiting."""
    disk = HeldDisk()
    monkeypatch.setattr(os, "fsync", disk.fsync)
    yield disk
    disk.release()
    for thread in threading.enumerate():
        if thread.name == "runhooks-save":
            thread.join()
