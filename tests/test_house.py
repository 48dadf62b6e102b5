"""The rules of the house, held against the code: who imports whom, sizes, probes, public names."""

import ast
import graphlib
import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

import runhooks as rh

SOURCE = Path(rh.__file__).parents[1]
FILES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.glob("runhooks/**/*.py"))
}

# From the bottom up. A folder imports what stands below it, and files of its own.
ORDER = [
    {"errors", "clock", "trigger", "arguments", "lazy", "near_names", "version"},
    {"stores"},
    {"ranks"},
    {"arrays"},
    {"events"},
    {"graph"},
    {"contract"},
    {"summary"},
    {"checkpoint"},
    {"engines"},
    {"session"},
    {"hooks"},
    {"training"},
    {
        "",
        "train",
        "plain",
        "jax",
        "torch",
        "tensorflow",
        "tensorboard",
        "bridges",
        "cli",
        "testing",
    },
]
FLOOR = {folder: height for height, folders in enumerate(ORDER) for folder in folders}

# What each framework is imported as, and by whom alone: engines/jax/ and arrays/jax.py.
FRAMEWORKS = {
    "jax": {"jax", "jaxlib", "flax", "optax"},
    "torch": {"torch"},
    "tensorflow": {"tensorflow", "keras"},
}

# Where the name of one is an argument that users give.
NAMES_IN_ARGUMENTS = {"runhooks.tensorboard.summary_writer": {"tensorflow"}}  # bins of histograms

# The same of the frameworks whose loops have a bridge: bridges/keras.py alone imports keras.
BRIDGED = {
    "accelerate": {"accelerate", "torch"},
    "ignite": {"ignite", "torch"},
    "keras": {"keras"},
    "lightning": {"lightning", "pytorch_lightning", "torch"},
    "optuna": {"optuna"},
    "torch_batches": {"torch"},
    "transformers": {"transformers", "torch"},
}

# What may be asked for whether it is there: of objects that are not ours, which declare nothing.
PROBED_FOLDERS = {"contract", "graph", "session", "hooks", "checkpoint"}
PROBES = {
    "an array of a user": {
        ("checkpoint.states", "value.dtype"),
        ("hooks.progress", "value.shape"),
        ("hooks.stopping", "value.dtype"),
        ("session.runs", "value.astype"),
    },
    "a function, source, engine, saver, rule, listener or stream of a user": {
        ("checkpoint.saver", "rule.wanted"),
        ("checkpoint.retention", "self.metric.by_step"),
        ("graph.engine", "leaf.shape"),
        ("graph.engine", "part.shape"),
        ("graph.epoch_means", "found.persistent"),
        ("graph.epoch_means", "metrics.<name>"),
        ("graph.epoch_means", "metrics.reset"),
        ("hooks.evaluation", "value.shape"),
        ("graph.build", "fn.__name__"),
        ("graph.build", "source.__next__"),
        ("graph.step", "fn.__name__"),
        ("graph.generators", "batch_sampler.sampler"),
        ("graph.generators", "elements.batch_sampler"),
        ("graph.generators", "elements.dataset"),
        ("graph.generators", "elements.sampler"),
        ("graph.generators", "holder.__dict__"),
        ("graph.generators", "value.__dict__"),
        ("graph.passes", "part.<name>"),
        ("graph.passes", "elements.persistent_workers"),
        ("graph.passes", "it.set_epoch"),
        ("graph.passes", "outer.set_epoch"),
        ("hooks.checkpoint_saver", "listener.after_save"),
        ("hooks.checkpoint_saver", "saver.last_checkpoints"),
        ("hooks.progress", "stream.write"),
        ("hooks.progress", "stream.flush"),
        ("hooks.progress", "stream.isatty"),
        ("session.scaffold", "saver.save"),
    },
    "a hook that need not extend ours": {
        ("session.hook_list", "hook.<attribute>"),
        ("session.hook_list", "hook.<name>"),
        ("session.hook_list", "hook.hook_name"),
        ("session.hook_list", "hook.is_of_the_session"),
        ("session.hook_list", "hook.runs_on"),
        ("session.scheduled_hook", "holder.<name>"),
        ("session.scheduled_hook", "hook.asks_on_all"),
        ("session.scheduled_hook", "hook.runs_on"),
        ("session.scheduled_hook", "hook.watch"),
        ("session.agreement", "hook.__dict__"),
        ("session.hooked", "added.hook.hook_secs"),
        ("session.scheduled_hook", "function.__module__"),
        ("session.scheduled_hook", "function.__qualname__"),
        ("session.scheduled_hook", "getattr(hook, method).__func__"),
        ("session.scheduled_hook", "hook.<method>"),
        ("session.scheduled_hook", "hook.__dict__"),
        ("session.scheduled_hook", "request.fetches"),
        ("session.hook_list", "hook.<method>"),
        ("session.hook_list", "hook.state_dict.__func__"),
        ("session.hook_list", "hook.saved_objects"),
        ("session.hook_list", "hook.on_exception"),
    },
    "an estimator, a specification or a tensor of TensorFlow's": {
        ("hooks.base", "run_context.next_step"),
        ("hooks.base", "element.outputs"),
        ("hooks.base", "key.name"),
        ("session.threads", "coord.stop_on_exception"),
    },
    "Python's own": {
        ("checkpoint.lock", "os.register_at_fork"),
        ("checkpoint.attempts", "os.posix_fadvise"),
        ("hooks.watchdog", "os.register_at_fork"),
        ("graph.step_result", "value._fields"),
        ("session.interruption", "handler.__self__"),
    },
}
# Private to PyTorch, which has no public name for it.
FOREIGN_PRIVATE = {
    "runhooks.engines.torch.engine": {"_pytorch_graph"},
    "runhooks.engines.tensorflow.graph": {"_add_control_input"},
    "runhooks.engines.torch.objects": {"_load_from_state_dict"},  # modules override it
    "runhooks.engines.torch.pending": {
        *("_indices", "_values"),  # the public ones need it coalesced
        "_get_fsdp_state",
        "_version",
    },
}
NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}


def folder(module):
    """``"session"`` for ``"runhooks.session.hooked"``, and ``"clock"`` for ``"runhooks.clock"``."""
    return module.partition(".")[2].partition(".")[0]


def short(module):
    return module.removeprefix("runhooks.")


@cache
def nodes(module):
    """All nodes of a file."""
    return list(ast.walk(ast.parse(FILES[module].read_text())))


@cache
def imported(module):
    """The modules that a file imports, inside functions and for type checkers too, by any means."""
    found = set()
    for node in nodes(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {it if it in FILES else node.module for it in inner.values()}
        elif isinstance(node, ast.Constant) and node.value in FILES and node.value != "runhooks":
            found.add(node.value)  # for import_module or lazily; "runhooks" is the name of the log
    return found


def imports_of_ours():
    return {module: imported(module) & FILES.keys() - {module} for module in FILES}


def test_every_folder_has_its_place():
    assert {folder(module) for module in FILES} <= FLOOR.keys()


def test_imports_go_downwards():
    upwards = {
        f"{module} imports {name}"
        for module, names in imports_of_ours().items()
        for name in names
        if FLOOR[folder(name)] > FLOOR[folder(module)]
    }
    assert upwards == set()


def test_imports_make_no_circle():
    graphlib.TopologicalSorter(
        imports_of_ours()
    ).prepare()  # raises CycleError, which names the circle


def test_frameworks_are_named_under_engines_and_arrays_alone():
    named = {
        f"{module} names {framework}"
        for module in FILES
        if folder(module) not in ("engines", "arrays", "bridges")
        for framework in frameworks_of(imported(module))
        | (strings(module) & FRAMEWORKS.keys()) - NAMES_IN_ARGUMENTS.get(module, set())
        if module != "runhooks" and folder(module) != framework  # a front door has its name
    }
    assert named == set()


@pytest.mark.parametrize("place", ["engines", "arrays", "bridges"])
def test_each_file_of_an_engine_adapter_or_bridge_imports_its_framework_alone(place):
    known = set(chain.from_iterable({**FRAMEWORKS, **BRIDGED}.values()))
    own = BRIDGED if place == "bridges" else FRAMEWORKS
    foreign = {
        f"{module} imports {name}"
        for module in FILES
        if folder(module) == place
        for name in {it.partition(".")[0] for it in imported(module)} & known
        if name not in own.get([*module.split("."), ""][2], ())
    }
    assert foreign == set()


def frameworks_of(modules):
    roots = {name.partition(".")[0] for name in modules}
    return {framework for framework, names in FRAMEWORKS.items() if not names.isdisjoint(roots)}


def strings(module):
    return {node.value for node in nodes(module) if isinstance(node, ast.Constant)}


def probes(module):
    """What is asked for by ``getattr(x, "name", default)`` or ``hasattr(x, "name")``: x.name."""
    for node in nodes(module):
        match node:
            case (
                ast.Call(func=ast.Name(id="getattr"), args=[owner, name, _])
                | ast.Call(func=ast.Name(id="hasattr"), args=[owner, name])
            ):
                known = name.value if isinstance(name, ast.Constant) else f"<{ast.unparse(name)}>"
                yield f"{ast.unparse(owner)}.{known}"


def test_layers_ask_of_each_other_what_is_declared():
    found = {
        (short(module), probe)
        for module in FILES
        if folder(module) in PROBED_FOLDERS
        for probe in probes(module)
    }
    allowed = set(chain.from_iterable(PROBES.values()))
    assert sorted(found - allowed) == []
    assert sorted(allowed - found) == []  # gone: to be taken off the list


def test_private_names_stay_in_their_file():
    foreign = {module: names for module in FILES if (names := private_names_of_others(module))}
    assert foreign == {}


def private_names_of_others(module):
    own = {it.attr for it in nodes(module) if isinstance(it, ast.Attribute) and is_self(it.value)}
    own |= {it.name for it in nodes(module) if isinstance(it, ast.FunctionDef | ast.ClassDef)}
    stored = (it for it in nodes(module) if isinstance(it, ast.Name))
    own |= {it.id for it in stored if isinstance(it.ctx, ast.Store)}
    names = chain(
        (alias.name for n in nodes(module) if isinstance(n, ast.ImportFrom) for alias in n.names),
        (node.attr for node in nodes(module) if isinstance(node, ast.Attribute)),
    )
    foreign = {name for name in names if name.startswith("_") and not name.endswith("__")}
    return foreign - own - NAMED_TUPLE - FOREIGN_PRIVATE.get(module, set())


def is_self(node):
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


#: Files of under 60 lines, each with a reason.
SMALL = {
    "lazy": "a small tool",
    "near_names": "a small tool",
    "version": "the build reads it",
    "jax": "a front door",
    "plain": "a front door",
    "train": "a front door",
    "tensorflow.estimator": "a front door",
    "tensorflow.train": "a front door",
    "torch": "a front door",
    "session.plain_log": "the log, which has nothing to do with signals",
    "arrays.tensorflow": "an adapter to one library",
    "bridges.optuna": "an adapter to one library",
    "bridges.tracking": "its public path",
    "tensorflow.scaffold": "private names of TensorFlow's",
}


def test_small_files_have_a_reason():
    found = {
        short(module)
        for module, path in FILES.items()
        if not path.stem.startswith("__") and len(path.read_text().splitlines()) < 60
    }
    assert found == SMALL.keys()


def test_folders_are_small():
    sizes = Counter(path.parent for path in FILES.values())
    assert {folder for folder, size in sizes.items() if size > 20} == set()


def test_functions_are_small():
    lengths = {
        f"{module}.{node.name}": node.end_lineno - node.lineno + 1
        for module in FILES
        for node in nodes(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > 60} == {}


def test_import_loads_no_framework():
    code = "import sys, runhooks; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    unwanted = {"google.protobuf", "tensorboard", "PIL", "hypothesis"}
    unwanted = unwanted.union(*FRAMEWORKS.values(), *BRIDGED.values())
    assert unwanted.isdisjoint(loaded.stdout.split())


USES = """
import sys
for name in ("Graph", "summary", "train", "get_default_graph", "Saver"):
    for module in [it for it in sys.modules if it.startswith("runhooks")]:
        del sys.modules[module]
    import runhooks
    getattr(runhooks, name)
    assert runhooks.Graph().engine.title, name
"""


def test_whatever_is_used_first_there_are_engines():
    subprocess.run([sys.executable, "-c", USES], check=True)


# Public is what a package names in ``__all__``.

PACKAGES = [
    module
    for module, path in FILES.items()
    if re.search(r"^(\w+, )*__all__ =", path.read_text(), re.MULTILINE)
    and folder(module) != "tensorflow"  # whose import takes seconds: tests/tensorflow/test_names.py
]


def public(package):
    """The public names of a package, and what they are."""
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


def is_documented_here(value):
    return inspect.isclass(value) or inspect.isfunction(value)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_sorted_there_listed_and_documented(package):
    module = importlib.import_module(package)
    names = public(package)
    assert [*module.__all__] == sorted(names)
    assert names.keys() <= set(dir(module))
    silent = {
        name
        for name, value in names.items()
        if is_documented_here(value)
        and (not (text := vars(value).get("__doc__", value.__doc__)) or text.startswith(f"{name}("))
    }
    assert silent == set()


def test_public_names_have_one_home():
    """The module that defines it, or its folder: none but front doors has it too."""
    front_doors = ORDER[-1]
    exporters = [package for package in PACKAGES if folder(package) not in front_doors]
    for name, value in public("runhooks").items():
        if is_documented_here(value):
            assert getattr(importlib.import_module(value.__module__), name) is value
            home = f"runhooks.{folder(value.__module__)}"
            others = {package for package in exporters if name in public(package)} - {home}
            assert others == set(), name
