"""What the site says is so: its navigation, its reference, its promises and its pictures."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import griffe
import pytest
import yaml

import runhooks as rh

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PUBLIC = [
    "runhooks",
    *(f"runhooks.{name}" for name in ("arrays", "events", "jax", "ranks", "stores", "summary")),
    *(f"runhooks.{name}" for name in ("tensorboard", "testing", "torch", "train")),
    "runhooks.tensorboard.metric_writers",
]
ERRORS = "runhooks.errors"


def pages_of(nav):
    for entry in nav:
        for target in [entry] if isinstance(entry, str) else entry.values():
            yield from [target] if isinstance(target, str) else pages_of(target)


def test_every_page_is_in_the_navigation():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    shown = list(pages_of(config["nav"]))
    assert len(shown) == len(set(shown))
    assert set(shown) == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


# --- The reference


def described():
    pages = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))
    return re.findall(r"^::: (\S+)$", pages, re.MULTILINE)


def test_nothing_is_described_twice():
    assert len(described()) == len(set(described()))


def resolved(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_described(module):
    bridges = "runhooks.bridges."  # each imports its framework
    shown = {id(resolved(path)) for path in described() if not path.startswith(bridges)}
    found = importlib.import_module(module)
    public = {name: getattr(found, name) for name in found.__all__ if name != "__version__"}
    assert not [
        name
        for name, it in public.items()
        if not isinstance(it, ModuleType) and id(it) not in shown
    ]


def test_every_error_is_described():
    errors = [it for it in vars(rh.errors).values() if getattr(it, "__module__", "") == ERRORS]
    classes = {f"{ERRORS}.{it.__name__}" for it in errors if isinstance(it, type)}
    assert classes <= set(described())


def test_docstrings_are_read_as_they_are_meant(caplog):
    package = griffe.load("runhooks", search_paths=[ROOT / "src"], docstring_parser="google")
    for path in described():
        it = package[path.removeprefix("runhooks.")]
        assert it.kind.value != "module", path
        for part in (it, *(m for n, m in it.members.items() if not n.startswith("_"))):
            if part.docstring is not None:
                assert part.docstring.parsed
    assert not [record.getMessage() for record in caplog.records]


# --- Promises and pictures


def test_a_test_stands_behind_each_promise():
    rows = re.findall(r"^\| (?!what |---)(.+) \|$", (DOCS / "promises.md").read_text(), re.M)
    assert len(rows) > 15
    for row in rows:
        tests = re.findall(r"(tests/\S+\.py)::(\w+)", row)
        assert tests, row
        for file, name in tests:
            tree = ast.parse((ROOT / file).read_text())
            assert name in {it.name for it in ast.walk(tree) if isinstance(it, ast.FunctionDef)}


def test_diagrams_are_those_of_the_code():
    command = [sys.executable, "-c", "import diagrams; print(*diagrams.outdated())"]
    found = subprocess.run(
        command, cwd=DOCS / "scripts", check=True, capture_output=True, text=True
    ).stdout.split()
    assert found == [], "run docs/scripts/diagrams.py"


def test_the_first_page_shows_the_examples():
    shown = re.findall(r"```python\n(.*?)```", page("index.md"), re.S)
    names = ("quickstart_jax", "quickstart_torch", "quickstart_tf1", "quickstart")
    for code, name in zip(shown, names, strict=True):
        _, _, example = (ROOT / "examples" / f"{name}.py").read_text().partition('"""\n\n')
        assert code == example


def page(name):
    return (DOCS / name).read_text()
