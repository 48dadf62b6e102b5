"""Random programs in the shapes of public ones do what their own plain loops do, bit for bit.

``SOAK_SEED=7 make soak ARGS="-k loops"`` begins with that seed, and ``SOAK_ROUNDS=100`` makes so
many programs on each engine. A failure prints the smallest plan that fails: ``SOAK_PLAN='...'``
makes that program again.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil

import pytest

from . import loops

ENGINES = ["numpy", "jax", "torch", "tensorflow"]
ROUNDS = {"numpy": 4000, "jax": 1000, "torch": 3000, "tensorflow": 1000}
QUICK = {"numpy": 20, "jax": 6, "torch": 20}
HANGS_SECS = 300
# Programs with worker processes take seconds: few have them.
WITH_WORKERS = 50


def make(engine, seed, folder, workers=False):
    plan = loops.drawn_plan(engine, seed, workers=workers and seed % WITH_WORKERS == 0)
    loops.check(plan, folder / str(seed))


@pytest.mark.parametrize(
    "engine", ["numpy", *(pytest.param(it, marks=pytest.mark.slow) for it in ("jax", "torch"))]
)
def test_a_few_programs_do_what_their_own_loops_do(engine, tmp_path):
    for seed in range(QUICK[engine]):
        make(engine, seed, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_programs_do_what_their_own_loops_do(engine, tmp_path):
    plan = json.loads(os.environ.get("SOAK_PLAN", "{}"))
    if plan:
        if plan["engine"] == engine:
            loops.check(plan, tmp_path)
        return
    first = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(2**31))
    print(f"SOAK_SEED={first}")
    for seed in range(first, first + int(os.environ.get("SOAK_ROUNDS") or ROUNDS[engine])):
        faulthandler.dump_traceback_later(HANGS_SECS, exit=True)
        make(engine, seed, tmp_path, workers=True)
        shutil.rmtree(tmp_path / str(seed))
    faulthandler.cancel_dump_traceback_later()
