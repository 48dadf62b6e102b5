"""``torch_runs`` and ``jax_runs``: ``all_runs`` with the launcher of the framework."""

from functools import partial

import pytest

from tests.gallery.programs import all_runs


@pytest.fixture(scope="session")
def torch_runs(torch_launcher, tmp_path_factory):
    return partial(all_runs, torch_launcher, tmp_path_factory)


@pytest.fixture(scope="session")
def jax_runs(jax_launcher, tmp_path_factory):
    return partial(all_runs, jax_launcher, tmp_path_factory)
