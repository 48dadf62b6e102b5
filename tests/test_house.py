"""The rules of the house, held against the code: who imports whom, sizes, public names."""

import ast
import graphlib
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

import runhooks as rh

SOURCE = Path(rh.__file__).parents[1]
FILES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.glob("runhooks/**/*.py"))
}
TREES = {module: ast.parse(path.read_text()) for module, path in FILES.items()}

# From the top down. What is beside each other may import each other, as long as no circle arises.
LAYERS = [
    {"", "train", "torch", "tensorflow", "cli", "testing"},
    {"session", "hooks"},
    {"contract", "summary", "checkpoint", "graph", "engines"},
    {"events", "trigger", "clock", "arguments", "errors", "lazy", "near_names", "version"},
]
LAYER = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}
FRAMEWORKS = {"jax", "jaxlib", "flax", "optax", "torch", "tensorflow", "keras"}
PUBLIC = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "Coordinator",
    "Due",
    "EvaluationHook",
    "FeedFnHook",
    "FinalOpsHook",
    "GarbageCollectionHook",
    "GlobalStepWaiterHook",
    "Graph",
    "GraphKeys",
    "HookTimesHook",
    "InMemoryEvaluatorHook",
    "KeepBest",
    "KeepEvery",
    "KeepLast",
    "KeepSteps",
    "LoggingTensorHook",
    "LooperThread",
    "MemoryHook",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanTensorHook",
    "Operation",
    "ProfilerHook",
    "ProgressHook",
    "RecoveryCounterHook",
    "RecoveryPolicy",
    "SavedStateHook",
    "Saver",
    "Scaffold",
    "SecondOrStepTimer",
    "Session",
    "SessionCreator",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Tensor",
    "ThroughputHook",
    "TimeLimitHook",
    "Trigger",
    "Variable",
    "WatchdogHook",
    "WorkerSessionCreator",
    "__version__",
    "call",
    "errors",
    "events",
    "get_default_graph",
    "group",
    "inputs",
    "latest_checkpoint",
    "make_early_stopping_hook",
    "name_scope",
    "placeholder",
    "random_key",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
    "summary",
    "train",
]
NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}


def part(module):
    """``"session"`` for ``"runhooks.session.hooked"``."""
    return module.partition(".")[2].partition(".")[0]


def imported(nodes):
    """The modules that these statements import, one by one."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in FILES else node.module


def at_import(tree):
    """The statements that run when the module is imported, less those for type checkers."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += ast.iter_child_nodes(node)


def functions(tree):
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_part_has_its_place():
    assert {part(module) for module in FILES} <= LAYER.keys()


@pytest.mark.parametrize("module", FILES)
def test_imports_go_downwards(module):
    ours = [name for name in imported(ast.walk(TREES[module])) if name.startswith("runhooks")]
    assert [name for name in ours if LAYER[part(name)] < LAYER[part(module)]] == []


def test_imports_make_no_circle():
    graph = {
        module: {name for name in imported(at_import(tree)) if name in FILES} - {module}
        for module, tree in TREES.items()
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("module", [m for m in FILES if part(m) != "engines"])
def test_frameworks_stand_under_engines_alone(module):
    roots = {name.partition(".")[0] for name in imported(ast.walk(TREES[module]))}
    assert roots.isdisjoint(FRAMEWORKS)


@pytest.mark.parametrize("module", FILES)
def test_private_names_stay_in_their_file(module):
    tree = TREES[module]
    nodes = list(ast.walk(tree))
    own = {node.attr for node in nodes if isinstance(node, ast.Attribute) and is_self(node.value)}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names = chain(
        (alias.name for n in nodes if isinstance(n, ast.ImportFrom) for alias in n.names),
        (node.attr for node in nodes if isinstance(node, ast.Attribute)),
    )
    foreign = {name for name in names if name.startswith("_") and not name.endswith("__")}
    assert foreign - own - NAMED_TUPLE == set()


def is_self(node):
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


@pytest.mark.parametrize("module", FILES)
def test_files_and_functions_are_small(module):
    assert len(FILES[module].read_text().splitlines()) <= 400
    lengths = {f.name: f.end_lineno - f.lineno + 1 for f in functions(TREES[module])}
    assert {name: length for name, length in lengths.items() if length > 60} == {}


def test_import_loads_no_framework():
    code = "import sys, runhooks; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    unwanted = FRAMEWORKS | {"google.protobuf", "tensorboard", "PIL", "hypothesis"}
    assert unwanted.isdisjoint(loaded.stdout.split())


def test_public_names():
    assert rh.__all__ == sorted(PUBLIC)
    assert [name for name in rh.__all__ if not hasattr(rh, name)] == []
