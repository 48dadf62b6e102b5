"""Random programs of reads and assignments agree with a model of them in plain Python."""

import operator
from functools import partial
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import runhooks as rh

pytestmark = pytest.mark.every_engine

MODULUS = 97
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
NAMES = ("a", "b", "c")
numbers = st.integers(0, MODULUS - 1)

# A node is made of those before it, which it names by number (modulo how many there are).
nodes = st.one_of(
    st.tuples(st.just("read"), st.sampled_from(NAMES)),
    st.tuples(st.just("constant"), numbers),
    st.tuples(st.sampled_from(sorted(OPERATORS)), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("assign"), st.sampled_from(NAMES), st.integers(0, 9)),
    st.tuples(st.just("assign_add"), st.sampled_from(NAMES), st.integers(0, 9)),
)
programs = st.lists(nodes, min_size=1, max_size=10)
# What the caller of a run and the hooks ask for.
parties = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=3)
runs = st.lists(parties, min_size=1, max_size=4)
# Values are arrays of one number: small ones, and such as the jax engine counts as large.
sizes = st.sampled_from([1, 1100])


def reduced(op, x, y):
    return OPERATORS[op](x, y) % MODULUS


def operands_of(program, number):
    """The numbers of the nodes that node ``number`` is made of; None stands for the constant 1."""
    kind, *args = program[number]
    if kind in ("read", "constant"):
        return []
    return [i % number if number else None for i in args if isinstance(i, int)]


class Asks(rh.SessionRunHook):
    """Asks in each run for what ``fetches`` then is."""

    def before_run(self, run_context):
        self.results = []
        return rh.SessionRunArgs(self.fetches) if self.fetches else None

    def after_run(self, run_context, run_values):
        self.results = run_values.results or []


def build(program, size):
    """The variables, and the tensor of each node, in the default graph."""

    def full(number):
        return np.full(size, number, np.int32)

    variables = {name: rh.Variable(full(i), name=name) for i, name in enumerate(NAMES)}
    tensors = []
    for number, (kind, *args) in enumerate(program):
        operands = [full(1) if i is None else tensors[i] for i in operands_of(program, number)]
        if kind == "read":
            tensor = variables[args[0]] + np.int32(0)
        elif kind == "constant":
            tensor = rh.call(lambda n: n, full(args[0]))
        elif kind in OPERATORS:
            tensor = rh.call(partial(reduced, kind), *operands)
        else:
            tensor = getattr(variables[args[0]], kind)(*operands)
        tensors.append(tensor)
    return variables, tensors


class PlainPython:
    """What the runs of a program must give, by the rules alone."""

    def __init__(self, program):
        self.program = program
        self.variables = {name: i for i, name in enumerate(NAMES)}

    def run(self, fetches):
        needed = set()
        for fetch in fetches:
            self.need(fetch, needed)
        start, values = dict(self.variables), {None: 1}
        for number in sorted(needed - {None}):
            values[number] = self.value(number, start, values)
        return [values[fetch] for fetch in fetches]

    def need(self, number, needed):
        needed.add(number)
        if number is not None:
            for operand in operands_of(self.program, number):
                self.need(operand, needed)

    def value(self, number, start, values):
        kind, *args = self.program[number]
        operands = [values[i] for i in operands_of(self.program, number)]
        if kind == "read":
            return start[args[0]]
        if kind == "constant":
            return args[0]
        if kind in OPERATORS:
            return reduced(kind, *operands)
        old = self.variables[args[0]] if kind == "assign_add" else 0
        self.variables[args[0]] = old + operands[0]
        return self.variables[args[0]]


def number_in(array):
    (number,) = set(np.asarray(array).tolist())
    return number


@pytest.mark.slow
@given(program=programs, runs=runs, size=sizes)
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_runs_of_a_random_program_agree_with_plain_python(engine, program, runs, size):
    model, hooks, kept, expected = PlainPython(program), [Asks(), Asks()], [], []
    with rh.Graph(engine=engine).as_default():
        variables, tensors = build(program, size)
        with rh.MonitoredSession(hooks=hooks) as sess:
            for parties in runs:
                caller, *others = [[i % len(tensors) for i in party] for party in parties]
                for hook, wanted in zip_longest(hooks, others, fillvalue=()):
                    hook.fetches = [tensors[i] for i in wanted]
                kept += sess.run([tensors[i] for i in caller])
                kept += [value for hook in hooks for value in hook.results]
                expected += model.run([i for party in (caller, *others) for i in party])
                now = sess.run(variables, hooks=False)
                assert {name: number_in(v) for name, v in now.items()} == model.variables
            # Later runs leave what earlier ones gave as it was.
            assert [number_in(value) for value in kept] == expected
