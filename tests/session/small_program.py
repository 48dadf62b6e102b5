"""A graph of a few operations, to compare short ways of making runs with the layers."""

from functools import cache
from types import SimpleNamespace

import numpy as np

import runhooks as rh

ENGINES = ["python", "jax"]
ONE = np.float32([1, 1])


@cache
def program(engine):
    """One graph for all examples: it is compiled once."""
    with rh.Graph(engine).as_default() as graph:
        x = rh.placeholder("x")
        w = rh.Variable(np.float32([1, 2]), name="w")
        rate = rh.Variable(np.float32(0.5), name="rate")
        new, loss = rh.call(lambda w, r, x: (w + r * x, (w * x).sum()), w, rate, x, num_outputs=2)
        step = rh.train.get_or_create_global_step()
        train = rh.group(w.assign(new), step.assign_add(1), name="train")
        twice = rh.group(w.assign(new), step.assign_add(2), name="twice")
        other = rh.Variable(np.int64(0), name="other", trainable=False)
        count = rh.group(other.assign_add(1), name="count")
    return SimpleNamespace(**locals())


def plain(value):
    if isinstance(value, list | tuple):
        return [plain(it) for it in value]
    if isinstance(value, dict):
        return {key: plain(it) for key, it in value.items()}
    return None if value is None else np.asarray(value).tolist()
