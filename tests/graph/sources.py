"""Sources of numbers for inputs, of each kind that there is; imported by the tests beside it."""

import numpy as np


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
