"""The training program of the soak: ``python program.py FOLDER [--engine python|jax|torch] ...``.

It trains a small linear model, with dropout, from an input that knows its own position, and tells
on standard output what it has come to, a line each:

    start STEP      a raw session begins at STEP: the first one, and one after every fault
    training STEP   the loop begins
    saving STEP     a checkpoint is about to be saved
    saved STEP      ... and is on the disk
    ending STEP     the loop has ended well; hooks are about to
    ended STEP WHY  all is closed
"""

from __future__ import annotations

import argparse
import random
import resource

import numpy as np

import runhooks as rh


def tell(*words):
    print(*words, flush=True)


class Faults:
    """Raises, at one in ``one_in`` of its calls, what a lost session is known by."""

    def __init__(self, seed, one_in=400):
        self.chance = random.Random(seed)
        self.one_in = one_in if seed else 0

    def strike(self):
        if self.one_in and self.chance.randrange(self.one_in) == 0:
            kind = self.chance.choice([rh.errors.AbortedError, rh.errors.UnavailableError])
            raise kind("injected")


class Batches:
    """Batches in an order of its own, shuffled anew in each epoch of 64."""

    def __init__(self, faults):
        self.faults = faults
        self.random = np.random.default_rng(1)
        self.order = []

    def __iter__(self):
        return self

    def __next__(self):
        self.faults.strike()
        if not self.order:
            self.order = self.random.permutation(64).tolist()
        x = np.random.default_rng(self.order.pop()).normal(size=(4, 500)).astype(np.float32)
        self.faults.strike()
        return x, x[:, :3].sum(axis=1)

    def state_dict(self):
        return {"random": self.random.bit_generator.state, "order": list(self.order)}

    def load_state_dict(self, state):
        self.random.bit_generator.state = state["random"]
        self.order = list(state["order"])


class Average(rh.SessionRunHook):
    """A moving average of the loss: it depends on each step of the past."""

    def __init__(self, loss, faults):
        self.loss, self.faults = loss, faults
        self.average, self.runs = 0.0, 0

    def after_create_session(self, session, coord):
        tell("start", session.global_step)

    def before_run(self, run_context):
        self.faults.strike()
        return rh.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        self.average = 0.9 * self.average + 0.1 * float(run_values.results)
        self.runs += 1
        self.faults.strike()

    def end(self, session):
        tell("ending", session.global_step)

    def state_dict(self):
        return {"average": self.average, "runs": self.runs}

    def load_state_dict(self, state):
        self.average, self.runs = state["average"], state["runs"]


class Telling(rh.train.CheckpointSaverListener):
    def before_save(self, session, global_step_value):
        tell("saving", global_step_value)

    def after_save(self, session, global_step_value):
        tell("saved", global_step_value)


def python_step(weights, speed, x, y, random):
    x = x * (random.random(x.shape) > 0.1)
    error = x @ weights - y
    speed = (0.9 * speed + error @ x / len(y)).astype(np.float32)
    return (weights - 0.001 * speed).astype(np.float32), speed, np.mean(error**2)


def jax_step(weights, speed, x, y, key):
    import jax

    x = x * jax.random.bernoulli(key, 0.9, x.shape)
    error = x @ weights - y
    speed = 0.9 * speed + error @ x / len(y)
    return weights - 0.001 * speed, speed, (error**2).mean()


def torch_graph(faults):
    """A graph of a step that changes its module and its optimizer in place."""
    import torch

    # The states of all three are kept in the checkpoints.
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    model = torch.nn.Linear(500, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def train_step(x, y):
        optimizer.zero_grad()
        dropped = torch.nn.functional.dropout(torch.as_tensor(x), 0.1)
        loss = torch.nn.functional.mse_loss(model(dropped)[:, 0], torch.as_tensor(y))
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    graph = rh.torch.Graph(model=model, optimizer=optimizer)
    with graph.as_default():
        rh.torch.step(train_step, ["loss"], args=rh.inputs(Batches(faults), num_outputs=2))
    return graph, "train_op", graph["loss"]


def function_graph(engine, faults):
    """A graph of a function whose results are assigned to variables."""
    step = {"python": python_step, "jax": jax_step}[engine]
    with rh.Graph(engine).as_default() as graph:
        x, y = rh.inputs(Batches(faults), num_outputs=2)
        weights = rh.Variable(np.zeros(500, np.float32), name="weights")
        speed = rh.Variable(np.zeros(500, np.float32), name="speed")
        key = rh.random_key(7)
        new, new_speed, loss = rh.call(step, weights, speed, x, y, key, num_outputs=3, name="step")
        counted = rh.train.get_or_create_global_step().assign_add(1)
        return graph, rh.group(weights.assign(new), speed.assign(new_speed), counted), loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--engine", default="python")
    parser.add_argument("--save-steps", type=int, default=5)
    parser.add_argument("--last-step", type=int)
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--faults", type=int, help="the seed of the faults; none without one")
    parser.add_argument("--file-limit", type=int, help="how many bytes a file may have")
    given = parser.parse_args()
    if given.file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (given.file_limit, resource.RLIM_INFINITY))
    faults = Faults(given.faults)
    if given.engine == "torch":
        graph, train_op, loss = torch_graph(faults)
    else:
        graph, train_op, loss = function_graph(given.engine, faults)
    with graph.as_default():
        rh.summary.scalar("loss", loss)
        saver = rh.Saver(asynchronous=True) if given.asynchronous else rh.Saver()
        save = rh.CheckpointSaverHook(
            given.folder, save_steps=given.save_steps, saver=saver, listeners=[Telling()]
        )
        hooks = [Average(loss, faults), save]
        if given.last_step is not None:
            hooks.append(rh.StopAtStepHook(last_step=given.last_step))
        with rh.MonitoredTrainingSession(
            checkpoint_dir=given.folder,
            scaffold=rh.Scaffold(saver=saver),
            hooks=hooks,
            save_checkpoint_steps=None,
            save_checkpoint_secs=None,
            save_summaries_steps=3,
            log_step_count_steps=10,
        ) as session:
            tell("training", session.global_step)
            while not session.should_stop():
                session.run(train_op)
            step = session.global_step
        tell("ended", step, session.stop_reason)


if __name__ == "__main__":
    main()
