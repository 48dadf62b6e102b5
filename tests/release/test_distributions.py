"""What is built of the repository, and what type checkers make of the installed package."""

import contextlib
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import numpy as np
import pytest
from hatchling import build as hatchling

from runhooks import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def build(folder: Path) -> tuple[Path, Path]:
    """Build into ``folder``; return the paths of the sdist and of the wheel made of it."""
    with contextlib.chdir(ROOT):
        sdist = folder / hatchling.build_sdist(str(folder))
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    with contextlib.chdir(folder / sdist.name.removesuffix(".tar.gz")):
        return sdist, folder / hatchling.build_wheel(str(folder))


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


def test_two_builds_are_equal(distributions, tmp_path) -> None:
    again = build(tmp_path)
    for first, second in zip(distributions, again, strict=True):
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes()


def test_a_wheel_holds_the_package_alone(distributions) -> None:
    _, wheel = distributions
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"runhooks-{__version__}.dist-info"
    sources = (it for it in (ROOT / "src/runhooks").rglob("*") if it.suffix in (".py", ".pyi"))
    package = {str(it.relative_to(ROOT / "src")) for it in sources}
    others = {name for name in names if not name.startswith(f"{info}/")} - package
    assert package <= names
    assert others == {"runhooks/py.typed"}
    assert f"{info}/licenses/LICENSE" in names
    assert wheel.stat().st_size < 600_000


def test_an_sdist_can_be_tested(distributions) -> None:
    sdist, _ = distributions
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"Makefile", "pyproject.toml", "LICENSE", "CHANGELOG.md", "tests/conftest.py"}
    assert wanted <= names


def test_metadata(distributions) -> None:
    _, wheel = distributions
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"runhooks-{__version__}.dist-info/METADATA").decode()
    metadata = Parser().parsestr(text)
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    classifiers = metadata.get_all("Classifier")
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.14"} <= set(classifiers)
    assert metadata["Description-Content-Type"] == "text/markdown"


PROGRAM = """
from typing import assert_type

import numpy as np

import runhooks as rh
from runhooks.tensorboard import SummaryWriter


class Last(rh.SessionRunHook):
    def __init__(self) -> None:
        self.value = np.nan

    def before_run(self, run_context: rh.SessionRunContext) -> rh.SessionRunArgs:
        return rh.SessionRunArgs("loss")

    def after_run(
        self, run_context: rh.SessionRunContext, run_values: rh.SessionRunValues
    ) -> None:
        self.value = float(run_values.results)


def train(directory: str) -> float:
    graph = rh.graph(lambda w, x: (w - x, {"loss": w @ w}), w=np.zeros(2), data=[np.ones(2)])
    last = Last()
    hooks = [rh.StopAtStepHook(last_step=3), last]
    with graph.as_default():
        with rh.MonitoredTrainingSession(checkpoint_dir=directory, hooks=hooks) as session:
            assert_type(session, rh.MonitoredSession)
            assert_type(session.should_stop(), bool)
            assert_type(session.global_step, int | None)
            session.run("train_op")
    with SummaryWriter(directory) as writer:
        assert_type(writer, SummaryWriter)
        writer.add_scalar("loss", last.value, 3)
    return last.value
"""
MISTAKES = """
import runhooks as rh

rh.StopAtStepHook(last_step="3")
rh.MonitoredTrainingSession(hooks=rh.NanTensorHook("loss"))
rh.SessionRunArgs()
"""


@pytest.fixture(scope="module")
def environment(distributions, tmp_path_factory) -> Path:
    """A Python with the wheel and NumPy: frameworks cost the checkers much time."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(distributions[1]) as archive:
        archive.extractall(packages)
    (packages / "numpy").symlink_to(Path(np.__file__).parent)
    return folder


CHECKERS = {
    "mypy": ["mypy", "--strict", "--cache-dir=cache", "--python-executable=environment/bin/python"],
    "pyright": ["basedpyright", "--level=error", "--pythonpath=environment/bin/python"],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_of_types_knows_the_package(environment, tmp_path, checker) -> None:
    (tmp_path / "environment").symlink_to(environment)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    (tmp_path / "good.py").write_text(PROGRAM)
    (tmp_path / "bad.py").write_text(MISTAKES)
    name, *options = CHECKERS[checker]
    command = [Path(sys.executable).with_name(name), *options, "good.py", "bad.py"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    wrong = {tuple(it.split(":")[:2]) for it in re.findall(r"\w+\.py:\d+", found)}
    assert wrong == {("bad.py", "4"), ("bad.py", "5"), ("bad.py", "6")}, found
