"""Random programs of TensorFlow 1 on our sessions, each held against TensorFlow's own session."""

from __future__ import annotations

import random
import threading

import numpy as np
import tensorflow

import runhooks.tensorflow

from .loops import M

tf = tensorflow.compat.v1


def drawn_plan(engine, seed):
    chance = random.Random(f"{engine} {seed}")
    names = ["weights", "average", "loss"]
    kinds = ["asks", "asks", "counts", "sleeps", "reads", "steps", "logs", "writes", "saves"]
    return {
        "engine": engine,
        "seed": seed,
        "summaries": chance.choice([None, 2]),
        "resource": chance.random() < 0.7,
        "queues": chance.choice([0, 0, 1, 2]),
        "threads": chance.choice([1, 1, 2, 4]),
        "capacity": chance.choice([2, 10, 10**6]),
        "steps": chance.choice([3, 30, 100]),
        "feeds": chance.random() < 0.5,
        "fetches": chance.sample(names, chance.randint(0, 2)),
        "looks": chance.choice([0, 0, 1]),
        "beside": chance.choice([0, 0, 2]),
        "hooks": [
            {
                "kind": chance.choice(kinds),
                "names": chance.sample(names, chance.randint(1, 2)),
                "every": chance.randint(1, 4),
            }
            for _ in range(chance.randint(0, 4))
        ],
    }


def smaller(plan):
    """Yield plans that have one thing less."""
    for at in range(len(plan["hooks"])):
        yield plan | {"hooks": plan["hooks"][:at] + plan["hooks"][at + 1 :]}
    plain = {
        "summaries": None,
        "queues": 0,
        "threads": 1,
        "feeds": False,
        "fetches": [],
        "looks": 0,
        "beside": 0,
    }
    for key, value in (plain | {"steps": 3}).items():
        if plan[key] != value:
            yield plan | {key: value}


class Both:
    """A program, made on TensorFlow's session and on ours."""

    def __init__(self, plan, folder):
        self.plan, self.folder = plan, folder

    def compare(self):
        theirs = self.train(tf.train, "theirs")
        ours = self.train(runhooks.tensorflow.train, "ours")
        for where, expected in theirs.items():
            assert ours[where] == expected, (
                f"{where}: {ours[where]}, and {expected} in TensorFlow's"
            )

    def train(self, train, name):
        plan, seen = self.plan, {"the loop": [], "looks": [], "beside": []}
        with tf.Graph().as_default():
            model = self.model()
            hooks = [
                self.hook(spec, at, train, model, seen) for at, spec in enumerate(plan["hooks"])
            ]
            hooks = [hook for hook in hooks if hook is not None]
            beside = Beside(train, model, plan["beside"])
            with train.MonitoredTrainingSession(
                checkpoint_dir=str(self.folder / name),
                hooks=[*hooks, beside.hook],
                save_checkpoint_secs=None,
                save_summaries_steps=plan["summaries"],
                log_step_count_steps=None,
            ) as session:
                for step in range(plan["steps"]):
                    feed = {model["fed"]: step} if plan["feeds"] else {}
                    fetches = {it: model["after"].get(it, model["loss"]) for it in plan["fetches"]}
                    if fetches:
                        got = session.run([model["train_op"], fetches], feed)[1]
                    else:
                        got = session.run(model["train_op"], feed)
                    seen["the loop"].append(plain(got))
                    for _ in range(plan["looks"]):
                        got = session.run_step_fn(
                            lambda step_context: step_context.session.run(model["weights"])
                        )
                        seen["looks"].append(plain(got))
                seen["the end"] = plain(
                    session.run_step_fn(
                        lambda step_context: step_context.session.run(
                            [model["weights"], model["average"]]
                        )
                    )
                )
        assert beside.wrong == [], f"runs beside had others' results: {beside.wrong}"
        seen["beside"] = beside.made
        seen["summaries"] = summaries(self.folder / name)
        return seen

    def model(self):
        """A step whose order is fixed: it reads, changes one variable and then the other."""
        plan = self.plan
        step = tf.train.get_or_create_global_step()
        options = {"dtype": tf.int64, "initializer": tf.zeros_initializer()}
        options["use_resource"] = plan["resource"]
        weights = tf.get_variable("weights", [2], **options)
        average = tf.get_variable("average", [2], **options)
        fed = tf.placeholder_with_default(np.int64(3), [], name="fed")
        drawn = fed
        for number in range(plan["queues"]):  # of constants: threads fill it in any order
            queue = tf.FIFOQueue(plan["capacity"], tf.int64, [[]])
            enqueue = queue.enqueue(np.int64(number + 1))
            tf.train.add_queue_runner(tf.train.QueueRunner(queue, [enqueue] * plan["threads"]))
            drawn += queue.dequeue()
        before = tf.identity(weights.read_value() if plan["resource"] else weights + 0)
        with tf.control_dependencies([before]):
            new = tf.assign(weights, (before * 3 + drawn) % M)
        with tf.control_dependencies([new]):
            old = tf.identity(average.read_value() if plan["resource"] else average + 0)
            mean = tf.assign(average, (old * 2 + new) % M)
        loss = tf.reduce_sum(mean + 0) % M
        with tf.control_dependencies([loss]):
            train_op = tf.assign_add(step, 1).op
        tf.summary.scalar("loss", tf.cast(loss, tf.float32))
        given = tf.placeholder(tf.int64, [], name="given")
        model = {"train_op": train_op, "fed": fed, "loss": loss}
        model |= {"given": given, "answer": given * 7 + 2}
        # As the step has left them: a read beside the step may come before or after it.
        return model | {
            "weights": weights,
            "average": average,
            "after": {"weights": new, "average": mean},
        }

    def hook(self, spec, at, train, model, seen):
        key = f"hook {at} {spec['kind']}"
        noted = seen[key] = []
        tensors = {it: model["after"].get(it, model["loss"]) for it in spec["names"]}
        if spec["kind"] == "logs":
            return train.LoggingTensorHook(
                tensors, spec["every"], formatter=lambda values: noted.append(plain(values)) or ""
            )
        if spec["kind"] == "saves":
            return train.CheckpointSaverHook(
                str(self.folder / f"{key} {train.__name__}"), save_steps=spec["every"]
            )
        if spec["kind"] == "writes":
            return train.StepCounterHook(
                spec["every"], output_dir=str(self.folder / f"steps {train.__name__}")
            )

        class Hook(train.SessionRunHook):
            runs = 0

            def before_run(self, run_context):
                self.due = spec["kind"] != "sleeps" or self.runs % spec["every"] == 0
                self.runs += 1
                asked = spec["kind"] in ("asks", "sleeps") and self.due
                return train.SessionRunArgs(tensors) if asked else None

            def after_run(self, run_context, run_values):
                if spec["kind"] == "reads":
                    own = run_context.session.run([model["weights"], model["average"]])
                    noted.append(plain(own))
                elif spec["kind"] == "steps":
                    noted.append(int(run_context.session.run(tf.train.get_global_step())))
                else:
                    noted.append(plain(run_values.results))

        return Hook()


class Beside:
    """Threads that make runs of their own on the session, as queue runners do."""

    def __init__(self, train, model, count):
        self.wrong, self.made, beside = [], count * 20, self

        class Hook(train.SessionRunHook):
            def after_create_session(self, session, coord):
                self.threads = [
                    threading.Thread(target=self.work, args=[session, number])
                    for number in range(count)
                ]
                for thread in self.threads:
                    thread.start()

            def work(self, session, number):
                for turn in range(20):
                    value = 100 * number + turn
                    answer = session.run(model["answer"], {model["given"]: value})
                    if int(answer) != value * 7 + 2:
                        beside.wrong.append((value, answer))

            def end(self, session):
                for thread in self.threads:
                    thread.join()

        self.hook = Hook()


def plain(value):
    """Numbers as lists, to be compared and shown."""
    if isinstance(value, dict):
        return {name: plain(it) for name, it in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(it) for it in value]
    return None if value is None else np.asarray(value).tolist()


def summaries(folder):
    """The curve of the loss."""
    return [
        (event.step, value.tag, value.simple_value)
        for path in sorted(folder.glob("events*"))
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "loss"
    ]
