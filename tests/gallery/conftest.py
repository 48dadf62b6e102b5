"""``torch_runs`` and ``jax_runs``: ``all_runs`` with a launcher that all files share."""

from functools import partial

import pytest

from tests.conftest import Launcher
from tests.gallery.programs import all_runs

SHARED = ["sklearn.datasets", "PIL.Image", "runhooks.training", "runhooks.hooks.evaluation"]


def runs_with(folders, *modules):
    # To compile a network well takes longer than to train it.
    environment = {"OMP_NUM_THREADS": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    launcher = Launcher(*modules, *SHARED, **environment)
    yield partial(all_runs, launcher, folders)
    launcher.close()


@pytest.fixture(scope="package")
def torch_runs(tmp_path_factory):
    # An optimizer of torch loads torch._dynamo.
    yield from runs_with(tmp_path_factory, "torch._dynamo", "runhooks.torch")


@pytest.fixture(scope="package")
def jax_runs(tmp_path_factory):
    yield from runs_with(tmp_path_factory, "flax.linen", "flax.nnx", "optax", "runhooks.jax")
