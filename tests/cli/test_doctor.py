"""``runhooks doctor``: what is installed, what is missing, what cannot be used."""

import signal
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from runhooks import __version__
from runhooks.cli.doctor import EXTRAS
from runhooks.cli.doctor import doctor as examine

_DEVELOPERS = {"train", "train-torch", "test", "soak", "bench", "docs"}
_TESTED = {"core", "jax", "stores", "tensorflow", "torch"}
_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
_RUN = "from runhooks.cli import main; import sys; sys.argv[1:] = ['doctor', *NAMES]; main()"
_NO_FRAMEWORKS = "import sys; sys.modules.update(dict.fromkeys(['jax', 'torch', 'tensorflow']))\n"


def doctor(first: str = "", names: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """Return the status and the lines of the command in a Python that ran ``first``."""
    ended = subprocess.run(
        [sys.executable, "-c", f"NAMES = {names}\n{first}\n{_RUN}"],
        capture_output=True,
        text=True,
    )
    return ended.returncode, ended.stdout.splitlines() + ended.stderr.splitlines()


def test_all_extras_of_users_are_examined() -> None:
    extras = tomllib.loads(_PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - _DEVELOPERS - {f"test-{it}" for it in _TESTED}


def test_versions_and_devices_of_what_is_installed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    examine(["jax", "torch", "tensorflow"])  # here, where the tests have loaded them
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"runhooks {__version__}, Python 3.")
    assert f"  numpy {metadata.version('numpy')}" in lines
    (torch,) = [it for it in lines if it.startswith("torch: ")]
    assert f"torch {metadata.version('torch')}" in torch
    after_jax = lines[lines.index(f"jax: jax {metadata.version('jax')}") + 1]
    import jax

    device = jax.local_devices()[0]
    assert after_jax.startswith(f"  devices: {device.platform}:0 {device.device_kind}")
    assert "  devices: CPU:0" in lines


def test_without_the_libraries_of_the_command_it_says_what_to_install() -> None:
    hidden = """
        from importlib import metadata
        found = metadata.version
        def version(name):
            if name in ("typer", "jax", "torch", "tensorflow", "tensorflow-cpu"):
                raise metadata.PackageNotFoundError(name)
            return found(name)
        metadata.version = version
        sys.modules["typer"] = None
    """
    status, lines = doctor("import sys\n" + "\n".join(it[8:] for it in hidden.splitlines()))
    assert "jax: not installed: pip install 'runhooks[jax]'" in lines
    assert "cli: typer not installed: pip install 'runhooks[cli]'" in lines
    assert status == 0, lines


def test_a_reader_that_stops_reading_ends_it_in_silence() -> None:
    command = [sys.executable, "-c", f"NAMES = []\n{_NO_FRAMEWORKS}\n{_RUN}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


def test_frameworks_are_imported_if_they_are_named_alone() -> None:
    status, lines = doctor(_NO_FRAMEWORKS)  # which cannot be imported
    assert status == 0, lines
    assert f"jax: jax {metadata.version('jax')}" in lines
    assert "devices: runhooks doctor jax torch tensorflow" in lines
    status, lines = doctor("sys = __import__('sys'); sys.modules['jax'] = None", ("jax",))
    assert status == 1
    assert next(it for it in lines if "PROBLEM" in it).startswith("  PROBLEM: jax cannot be used")
    status, lines = doctor(names=("jux",))
    assert (status, lines) == (1, ["runhooks: doctor takes jax, torch, tensorflow, not 'jux'"])
