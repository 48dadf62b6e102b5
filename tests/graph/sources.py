"""Sources of numbers for inputs, one of each kind, and a training that draws from them."""

import numpy as np

import runhooks as rh


def train(source, epochs=1, engine="python", last=1000, **arguments):
    """What a run draws that trains to the end of ``source``, or to the step ``last``.

    ``source``: what an input takes, or a tuple of these. ``arguments``: of the session.
    """
    drawn = []
    with rh.Graph(engine).as_default():
        sources = source if isinstance(source, tuple) else (source,)
        inputs = [rh.inputs(it, name="batch", epochs=epochs) for it in sources]
        batches = [rh.call(lambda batch: batch, it) for it in inputs]
        train_op = rh.group(*batches, rh.train.create_global_step().assign_add(1))
        hooks = [rh.StopAtStepHook(last_step=last)]
        with rh.MonitoredTrainingSession(
            hooks=hooks, save_summaries_steps=None, log_step_count_steps=None, **arguments
        ) as session:
            while not session.should_stop():
                elements, _ = session.run([batches, train_op])
                drawn.append([np.asarray(it).tolist() for it in elements])
    return drawn if isinstance(source, tuple) else [element for (element,) in drawn]


class Loader:
    """Iterable with a position of its own, as a loader has; each epoch in another order."""

    def __init__(self, size=3):
        self.size, self.epoch, self.index = size, 0, 0

    def __iter__(self):
        while self.index < self.size:
            order = np.random.default_rng(self.epoch).permutation(self.size)
            self.index += 1
            yield 10 * self.epoch + int(order[self.index - 1])
        self.epoch, self.index = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "index": self.index}

    def load_state_dict(self, state):
        self.epoch, self.index = state["epoch"], state["index"]


class Endless(Loader):
    """The same without an end."""

    def __init__(self, size=6):
        super().__init__(size)

    def __iter__(self):
        while True:
            yield from super().__iter__()


class Iterator:
    """An iterator as grain's are: its own iterator, and positioned when it has begun."""

    def __init__(self, size=100):
        self.size, self.position = size, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.position == self.size:
            raise StopIteration
        self.position += 1
        return self.position

    def get_state(self):
        return self.position

    def set_state(self, position):
        self.position = position


class Iterated:
    """An iterable whose iterators alone have a position, as a data set of grain has."""

    def __init__(self, size=100):
        self.size = size

    def __iter__(self):
        return Iterator(self.size)


def uniform(engine, key, shape=(3,)):
    """Random numbers below 1, drawn with ``key`` in the way of the engine's library."""
    if engine == "python":
        return key.random(shape, np.float32)
    if engine == "torch":
        import torch

        return torch.rand(shape, generator=key)
    if engine == "jax":
        import jax

        return jax.random.uniform(key, shape)
    import mlx.core

    return mlx.core.random.uniform(shape=shape, key=key)
