"""A trivial TensorFlow step: bare, in TensorFlow's MonitoredSession, and in runhooks, with hooks.

The hooks are the same, and none of them is due during the measurement. TensorFlow's
``CheckpointSaverHook(save_steps=...)`` reads the global step once more when it is due; its
``SummarySaverHook`` and ``StepCounterHook`` fetch it in every run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from bench.measure import NEVER, Contender, Effort, Loop, repeated
from bench.sessions import Asks, running
from bench.table import Table, measured
from runhooks.tensorflow import train

v1 = tf.compat.v1
PREPARED = "TensorFlow: make_callable, bare"
HOOKS = {0: "MonitoredSession, no hooks", 3: "three hooks, none due", 5: "five hooks, none due"}
tf.get_logger().setLevel("ERROR")


def build() -> Any:
    """As trivial a step as that of the jax engine: two assignments and the global step."""
    weights = v1.get_variable("weights", initializer=tf.zeros(8), use_resource=True)
    moments = v1.get_variable("moments", initializer=tf.zeros(8), use_resource=True)
    v1.summary.scalar("first", weights[0])
    count = v1.train.get_or_create_global_step().assign_add(1)
    return tf.group(weights.assign_add(tf.ones(8)), moments.assign(moments * 0.9), count)


def hooks_of(names: Any, count: int) -> list[Any]:
    """The first ``count`` of five, of ``names``: TensorFlow's or ours."""
    run_dir, weights = tempfile.mkdtemp(), v1.global_variables()[0]
    return [
        names.StopAtStepHook(last_step=NEVER),
        names.StepCounterHook(every_n_steps=NEVER, output_dir=run_dir),
        names.LoggingTensorHook({"weights": weights}, every_n_iter=NEVER),
        names.SummarySaverHook(
            save_steps=NEVER, output_dir=run_dir, summary_op=v1.summary.merge_all()
        ),
        names.CheckpointSaverHook(run_dir, save_steps=NEVER),
    ][:count]


class TensorFlowAsks(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Asks for a tensor in every run, as ``Asks`` of ours does."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(self._tensor)


def bare(fetches_weights: bool = False) -> Loop:
    with tf.Graph().as_default():
        train_op = build()
        session = initialized_session()
        weights = v1.global_variables()[0].value()
    return running(session, [train_op, weights] if fetches_weights else train_op)


def prepared() -> Loop:
    """TensorFlow's own way to call a step again and again."""
    with tf.Graph().as_default():
        train_op = build()
        call = initialized_session().make_callable(train_op)
    return repeated(call)


def initialized_session() -> Any:
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    return session


def monitored_session(names: Any, hooks: int) -> Loop:
    with tf.Graph().as_default():
        train_op = build()
        session = names.MonitoredSession(hooks=hooks_of(names, hooks))
    return running(session, train_op)


def asking_session(names: Any, hook: Callable[[Any], Any], count: int) -> Loop:
    """Fetches the weights, and so do its hooks."""
    with tf.Graph().as_default():
        train_op, weights = build(), v1.global_variables()[0].value()
        session = names.MonitoredSession(hooks=[hook(weights) for _ in range(count)])
    return running(session, [train_op, weights])


VARIES = (
    "The session's own part takes 2 µs. TensorFlow's call takes 20 to 40 µs of its own, by how its "
    "threads share the processors, and one that fetches the global step as well varies more."
)
ASKED = "The hook is called, and its request joins the run, as on every engine."


def contenders() -> list[Contender]:
    """TensorFlow's ``make_callable`` first: the others are multiples of it."""
    made = [
        Contender(PREPARED, prepared(), role="limit"),
        Contender("TensorFlow: Session.run, bare", bare(), role="limit"),
    ]
    for hooks, what in HOOKS.items():
        loop = monitored_session(train, hooks)
        made.append(Contender(f"runhooks: {what}", loop, PREPARED, 2.0, why=VARIES))
    for hooks, what in HOOKS.items():
        loop = monitored_session(v1.train, hooks)
        beside = f"runhooks: {what}"
        made.append(Contender(f"TensorFlow: {what}", loop, PREPARED, role="peer", beside=beside))
    return made


def that_ask() -> list[Contender]:
    """Hooks that are due in every run, in a loop that fetches the same."""
    fetched = "runhooks: no hooks"
    return [
        Contender("TensorFlow: Session.run, fetching it", bare(True), role="limit"),
        Contender(fetched, asking_session(train, Asks, 0)),
        Contender("runhooks: one hook", asking_session(train, Asks, 1), fetched, 3.0, why=ASKED),
        Contender("runhooks: five hooks", asking_session(train, Asks, 5), fetched, 15.0, why=ASKED),
        Contender(
            "TensorFlow: one hook",
            asking_session(v1.train, TensorFlowAsks, 1),
            role="peer",
            beside="runhooks: one hook",
        ),
        Contender(
            "TensorFlow: five hooks",
            asking_session(v1.train, TensorFlowAsks, 5),
            role="peer",
            beside="runhooks: five hooks",
        ),
    ]


def calling(call: Callable[[], Any]) -> Loop:
    def loop(times: int) -> None:
        for _ in range(times):
            call()

    return loop


def bare_callable() -> Loop:
    with tf.Graph().as_default() as graph:
        train_op = build()
        session = v1.Session(graph=graph)
        session.run(v1.global_variables_initializer())
    return calling(session.make_callable(train_op))


def monitored_callable(hooks: int) -> Loop:
    with tf.Graph().as_default():
        train_op = build()
        session = train.MonitoredSession(hooks=hooks_of(train, hooks))
    return calling(session.make_callable(train_op))


def callables() -> list[Contender]:
    """The same fetches as a function, without hooks and with five that sleep."""
    alone = "TensorFlow: make_callable, bare"
    return [
        Contender(alone, bare_callable(), role="limit"),
        Contender(
            "runhooks: make_callable, no hooks", monitored_callable(0), alone, 2.0, why=VARIES
        ),
        Contender(
            "runhooks: and five hooks, none due", monitored_callable(5), alone, 2.0, why=VARIES
        ),
    ]


def tables(effort: Effort) -> Iterator[Table]:
    yield measured("TensorFlow, a trivial step", contenders(), effort, 51, 300)
    yield measured("hooks that ask in every run, TensorFlow", that_ask(), effort, 31, 100)
    yield measured("TensorFlow, a step as a function", callables(), effort, 51, 300)
