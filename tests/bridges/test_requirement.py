"""Bridges whose framework is missing, and what importing runhooks loads."""

import subprocess
import sys

import pytest

import runhooks as rh
from runhooks.bridges.requirement import require


def test_a_missing_framework_is_named_with_what_to_install():
    with pytest.raises(ImportError, match=r"needs nowhere, .* pip install 'nowhere>=3'") as caught:
        require("nowhere", "nowhere>=3")
    assert caught.value.name == "nowhere"


def test_there_are_no_other_bridges():
    with pytest.raises(AttributeError, match=r"'runhooks.bridges' has no attribute 'kerras'"):
        rh.bridges.kerras  # noqa: B018


def test_the_package_imports_no_framework():
    code = "import sys, runhooks as rh; rh.bridges; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    frameworks = {"accelerate", "ignite", "keras", "lightning", "optuna", "torch", "transformers"}
    assert frameworks.isdisjoint(loaded)
