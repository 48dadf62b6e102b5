"""What most tests stand on: a graph, a small model, an input that can fail."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import settings

import runhooks as rh
from runhooks.stores.interruption import forget_interrupt
from tests import core
from tests.s3_server import S3Server

# A shell that starts the tests in the background lets them, and all they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# torch asks the name server at each connection of ranks; a lost answer costs 5 seconds else.
os.environ.setdefault("RES_OPTIONS", "timeout:1")

# Threads of OpenBLAS, and those of OpenMP in torch, wait for work by spinning, in every process.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


# What takes longest comes first, so that no process is left alone with it at the end.
LONGEST = [
    "test_browser.py",
    "test_example_digits.py",
    "test_examples.py",
    "test_jax_front_door.py",
    "test_keras.py",
    "test_ranks.py",
    "test_distributions.py",
    "test_fifth_engine.py",
    "test_sharded_checkpoints.py",
    "test_life_cycle.py",
    "test_stores.py",
    "test_soak.py",
    "test_example.py",
    "test_store.py",
    "test_doctor.py",
    "test_sharded_jax.py",
    "test_jax_compilations.py",
    "test_cluster.py",
    "test_command.py",
    "test_plot.py",
    "test_cycles.py",
    "test_watchdog.py",
    "test_resume.py",
]


# A property that is wrong is found by the examples of some runs, if not of this one.
settings.register_profile("quick", max_examples=40)
settings.load_profile("quick")

# What JAX has compiled begins anew when it takes more.
_COMPILED_BYTES = 1 << 30


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--core", action="store_true", help="run what the installed packages can")
    parser.addoption("--engine", help="run on this engine what is marked every_engine, on no other")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    # A process waits for stores, ranks and programs for a third of its time.
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--core"):
        config.pluginmanager.register(core)
    _share_what_jax_compiles(config)


def _share_what_jax_compiles(config: pytest.Config) -> None:
    """Keep what is compiled for all processes, of the next tests, too."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or not hasattr(config, "cache"):
        return
    folder = config.cache.mkdir("compiled")
    if sum(file.stat().st_size for file in folder.iterdir()) > _COMPILED_BYTES:
        shutil.rmtree(folder)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave what is loaded out of every garbage collection: it takes one a second."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that is marked ``every_engine``, as its engine matters, once on each engine."""
    marked = metafunc.definition.get_closest_marker("every_engine")
    if marked and "engine" in metafunc.fixturenames:
        given = metafunc.config.getoption("--engine")
        all_engines = ["python", "jax", "torch"]
        engines = core.engines() if metafunc.config.getoption("--core") else all_engines
        metafunc.parametrize("engine", [given] if given else engines)


@pytest.fixture
def engine() -> str:
    """The engine of the graph: NumPy's, if the test is not marked ``every_engine``."""
    return "python"


@pytest.fixture
def graph(engine: str) -> Iterator[rh.Graph]:
    """A graph of the engine, the default graph of the test."""
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


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server on this machine."""
    server = S3Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _no_interrupt_before() -> None:
    """Stores are given little time for some seconds after a Ctrl-C, which another test may send."""
    forget_interrupt()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket, where clients find it without being told more."""
    import s3fs

    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()  # a test without a server may have made some
    yield s3_server.new_bucket()
    s3fs.S3FileSystem.clear_instance_cache()  # they know this server, or a proxy of the test


class HeldDisk:
    """Files get to the disk when ``release`` is called; ``fail(error)``: that comes of it.

    It is held from the beginning.
    """

    def __init__(self) -> None:
        self._fsync = os.fsync
        self._released = threading.Event()
        #: Set when somebody has come to write.
        self.arrived = threading.Event()
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
        self.arrived.set()
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


class Launcher:
    """Starts programs, each a process that finds ``modules`` loaded; launcher.py does it."""

    def __init__(self, *modules: str, **environment: Any) -> None:
        for package in {module.partition(".")[0] for module in modules}:
            if importlib.util.find_spec(package) is None:
                raise ModuleNotFoundError(f"No module named {package!r}")
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("launcher.py"), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ
            | environment
            | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )
        self._cases = itertools.count()

    def close(self) -> None:
        """End it, and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with self._process:
            pass

    def start(self, log: Path, program: Path, *arguments: Any) -> int:
        """Start a program, whose output goes to ``log``; the number of its process."""
        return self._do("start", log, program, *arguments)

    def wait(self, process: int) -> int:
        """Wait for the end of a process; its status, or minus the signal that ended it."""
        return self._do("wait", process)

    def outcome(self, folder: Path, program: Path, /, **case: Any) -> tuple[int, Any]:
        """Run a program, which may kill itself; its status, and what it has printed last in JSON.

        It gets ``case`` as a file. If it has printed nothing in JSON, that is None.
        """
        number = next(self._cases)
        file, log = folder / f"{number}.json", folder / f"{number}.log"
        file.write_text(json.dumps(case, default=str))
        status = self.wait(self.start(log, program, file))
        lines = log.read_text().splitlines()
        assert status in (0, -signal.SIGKILL), lines
        printed = [line for line in lines if line.startswith(("{", "["))]
        return status, json.loads(printed[-1], parse_constant=str) if printed else None

    def run(self, folder: Path, code: str, *arguments: Any) -> tuple[int, str]:
        """Run a program of this ``code``; its status, and what it has printed."""
        number = next(self._cases)
        program, log = folder / f"{number}.py", folder / f"{number}.log"
        program.write_text(code)
        status = self.wait(self.start(log, program, *arguments))
        return status, log.read_text()

    def kill(self, process: int) -> None:
        """Kill a process, and wait for its end."""
        os.kill(process, signal.SIGKILL)
        self.wait(process)

    def living(self) -> int:
        """How many processes have not ended."""
        return self._do("living")

    def _do(self, *words: Any) -> int:
        print(json.dumps(words, default=str), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"not in time: {words}"
        return int(answer)


# What most programs of a kind find loaded, so that one launcher starts them all.
PLAIN = [
    *("runhooks.plain", "runhooks.engines.numpy.engine", "numpy.ma"),
    *("runhooks.training", "runhooks.hooks.evaluation"),
    *("runhooks.hooks.stopping", "runhooks.hooks.watchdog"),
]
DIGITS = ["sklearn.datasets", "sklearn.model_selection", "PIL.Image"]
TRAINING = ["runhooks.training", "runhooks.hooks.evaluation"]
JAX = ["flax.linen", "flax.nnx", "optax", "runhooks.jax", *DIGITS, *TRAINING]
TORCH = [
    "torch._dynamo",  # as optimizers load it
    *("torch.distributed.fsdp", "torchdata.stateful_dataloader", "runhooks.torch"),
    *(*DIGITS, *TRAINING),
]


@pytest.fixture(scope="session")
def launcher_with() -> Iterator[Callable[..., Launcher]]:
    """Makes launchers, which end with the tests."""
    with ExitStack() as stack:

        def make(*modules: str, **environment: Any) -> Launcher:
            launcher = Launcher(*modules, **environment)
            stack.callback(launcher.close)
            return launcher

        yield make


RANK_PROGRAM = Path(__file__).parent / "ranks" / "rank_program.py"


class Ranks:
    """Starts ranks of ``ranks/rank_program.py``; all groups share one store, hosted by no rank."""

    def __init__(self, launcher, folder):
        self.launcher, self.folder = launcher, folder
        self.cases = 0
        self.start("host", RANK_PROGRAM, folder, "host")

    def start(self, name, *words):
        return self.launcher.start(self.folder / f"{name}.log", *words)

    def train(self, size=2, **events):
        """Train on ``size`` ranks, with events; return the training, which has begun."""
        self.cases += 1
        return Training(self, f"case-{self.cases}", size, events)


class Training:
    def __init__(self, ranks, case, size, events):
        self.ranks, self.case, self.size = ranks, case, size
        self.processes = [
            ranks.start(
                f"{case}-{rank}", RANK_PROGRAM, ranks.folder, case, rank, size, json.dumps(events)
            )
            for rank in range(size)
        ]

    def log(self, rank):
        return (self.ranks.folder / f"{self.case}-{rank}.log").read_text()

    def has_started(self, rank):
        return (self.ranks.folder / f"{self.case}-{rank}.started").exists()

    def let_go(self):
        """Let ranks that wait go on."""
        (self.ranks.folder / "go").touch()

    def found_by(self, rank):
        """Wait for the end of one rank; return what it has found."""
        self.ranks.launcher.wait(self.processes[rank])
        return self.found(rank)

    def found(self, rank):
        """What a rank that has ended has found; None if it had no time to say."""
        file = self.ranks.folder / f"{self.case}-{rank}.json"
        return json.loads(file.read_text()) if file.exists() else None

    def end(self):
        """Wait for the ends of all ranks; return their statuses and what they have found."""
        statuses = [self.ranks.launcher.wait(process) for process in self.processes]
        return statuses, [self.found(rank) for rank in range(self.size)]


@pytest.fixture(scope="session")
def torch_launcher(launcher_with) -> Launcher:
    """Starts programs that train with torch."""
    return launcher_with(*TORCH, KERAS_BACKEND="torch")


@pytest.fixture(scope="session")
def jax_launcher(launcher_with) -> Launcher:
    """Starts programs that train with JAX."""
    return launcher_with(*JAX, KERAS_BACKEND="jax")


@pytest.fixture(scope="session")
def tensorflow_launcher(launcher_with) -> Launcher:
    """Starts programs that train with TensorFlow."""
    return launcher_with("tensorflow", "runhooks.tensorflow")


@pytest.fixture(scope="session")
def plain_launcher(launcher_with) -> Launcher:
    """Starts programs that train without a framework."""
    return launcher_with(*PLAIN)


@pytest.fixture(scope="module")
def ranks(torch_launcher, tmp_path_factory) -> Ranks:
    """Trains on several ranks of torch.distributed."""
    return Ranks(torch_launcher, tmp_path_factory.mktemp("ranks"))
