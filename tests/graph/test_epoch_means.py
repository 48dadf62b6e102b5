"""``epoch_mean`` and ``epoch_metrics``: what the steps of an epoch add up to, on resume too."""

from contextlib import suppress

import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

import runhooks as rh

#: Batches of unlike sizes, three an epoch.
BATCHES = [np.float32([0.1, 0.7, 3.3]), np.float32([5.9]), np.float32([2.2, 1e3])]


class KilledError(Exception):
    pass


def graph_of(engine, epochs=2):
    """A step whose loss is that of the batch, and grows with each step."""

    def train_step(total, batch):
        loss = batch.mean() + total
        return total + 1, {"loss": loss, "count": 2 * loss}

    total = torch.zeros(()) if engine == "torch" else np.float32(0)
    data = [torch.from_numpy(it) for it in BATCHES] if engine == "torch" else BATCHES
    return rh.graph(train_step, total=total, data=data, epochs=epochs, engine=engine)


def train(engine="python", weight=None, fails_at=None, every=1, **arguments):
    """Train; return (step, mean) at the ends of epochs, and (loss, weight) of each run."""
    found, runs = [], []
    with suppress(KilledError), graph_of(engine).as_default() as graph:
        if weight == "tensor":
            weight = graph["count"]
        mean = rh.epoch_mean("loss", weight=weight)
        hook = rh.CallHook(
            lambda step, value: found.append((int(step) + 1, float(value))),
            ["global_step", mean],
            trigger=rh.Trigger(every_epochs=every),
        )
        arguments = {"save_summaries_steps": None, "log_step_count_steps": None, **arguments}
        with rh.MonitoredTrainingSession(hooks=[hook], **arguments) as session:
            while not session.should_stop():
                size = len(BATCHES[session.global_step % 3])
                _, loss, count = session.run(["train_op", "loss", "count"])
                weights = {None: size, 1: 1, "loss": float(loss)}
                runs.append((float(loss), weights.get(weight, float(count))))
                if session.global_step == fails_at:
                    raise KilledError
    return found, runs


def plain_mean(runs):
    total = count = 0.0
    for loss, weight in runs:
        total += loss * weight
        count += weight
    return total / count


@pytest.mark.every_engine
@pytest.mark.parametrize("weight", [None, "tensor", "count", "loss", 1])
def test_it_is_the_mean_of_a_plain_loop(weight, engine):
    found, runs = train(engine, weight)
    expected = [plain_mean(runs[:3]), plain_mean(runs[3:])]
    assert [step for step, _ in found] == [3, 6]
    near = pytest.approx(expected, rel=1e-6 if engine == "jax" else 1e-15)
    assert [mean for _, mean in found] == near


@pytest.mark.every_engine
def test_asked_for_in_mid_epoch_it_is_the_mean_so_far(engine):
    found, runs = train(engine, every=1 / 3)
    expected = [plain_mean(runs[3 * (n // 3) : n + 1]) for n in range(6)]
    near = pytest.approx(expected, rel=1e-6 if engine == "jax" else 1e-15)
    assert [mean for _, mean in found] == near


@pytest.mark.every_engine
@pytest.mark.parametrize("fails_at", [1, 2, 3, 4, 5])
def test_a_resumed_run_has_the_same_means_to_the_last_digit(fails_at, engine, tmp_path):
    undisturbed, _ = train(engine)
    arguments = {"checkpoint_dir": tmp_path, "save_checkpoint_steps": 1}
    found, _ = train(engine, fails_at=fails_at, **arguments)
    assert found + train(engine, **arguments)[0] == undisturbed


def test_many_values_are_added_up_without_loss_on_jax():
    values = np.random.default_rng(0).uniform(0.1, 5, 20_000).astype(np.float32)
    means = []
    graph = rh.jax.graph(lambda total, x: (total, {"loss": x}), total=np.float32(0), data=values)
    with graph.as_default():
        hook = rh.CallHook(means.append, [rh.epoch_mean("loss", weight=1)], every_n_epochs=1)
        with rh.MonitoredSession(hooks=[hook]) as session:
            while not session.should_stop():
                session.run("train_op")
    assert float(means[0]) == pytest.approx(values.astype(np.float64).mean(), rel=1e-7)


def test_what_is_fed_by_hand_counts_its_examples():
    graph = rh.graph(lambda total, x: (total, {"loss": x.mean()}), total=0.0, steps_per_epoch=3)
    means = []
    with graph.as_default():
        hook = rh.CallHook(means.append, [rh.epoch_mean("loss")], every_n_epochs=1)
        with rh.MonitoredSession(hooks=[hook]) as session:
            for batch in BATCHES:
                session.run("train_op", {"x": batch})
    expected = plain_mean([(float(it.mean()), len(it)) for it in BATCHES])
    assert means == pytest.approx([expected], rel=1e-15)


def gan(last=None, **arguments):
    """Two discriminator runs and one generator run in each iteration; the means of both."""
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = {"d": [], "g": []}

    def stepped(name, batch):
        loss = (model(batch[:, None]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[name].append(float(loss.detach()))
        return {f"{name}_loss": loss}

    found = []
    with rh.torch.Graph(model=model, optimizer=optimizer, steps_per_epoch=6).as_default():
        rh.torch.step(lambda batch: stepped("d", batch), name="d", outputs=["d_loss"])
        rh.torch.step(lambda batch: stepped("g", batch), name="g", outputs=["g_loss"])
        d_mean, g_mean = rh.epoch_mean("d_loss"), rh.epoch_mean("g_loss")
        with rh.MonitoredTrainingSession(**arguments) as session:
            while session.global_step < (last or 6):
                batch = torch.full((2,), float(session.global_step))
                name = "g" if session.global_step % 3 == 2 else "d"
                asked = g_mean if name == "g" else d_mean
                found.append((name, float(session.run([name, asked], {"batch": batch})[1])))
    return found, losses


def test_each_mean_counts_only_runs_of_its_own_step():
    found, losses = gan()
    seen = {"d": 0, "g": 0}
    for name, mean in found:
        seen[name] += 1
        expected = np.mean(losses[name][: seen[name]])
        assert mean == pytest.approx(expected, rel=1e-6)
    assert seen == {"d": 4, "g": 2}


def test_means_of_two_steps_are_resumed(tmp_path):
    undisturbed, _ = gan()
    found, _ = gan(last=4, checkpoint_dir=tmp_path)
    assert found + gan(checkpoint_dir=tmp_path)[0] == undisturbed


# epoch_metrics


@pytest.fixture
def compiled():
    """The names of the functions that XLA has compiled since."""
    import jax

    names = []

    def listen(event, duration, fun_name="", **kwargs):
        if event.endswith("backend_compile_duration") and fun_name in ("jit(step)", "jit(fetches)"):
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return names


def test_a_mean_is_computed_in_the_step_which_is_compiled_once(compiled):
    data = np.arange(6, dtype=np.float32)
    graph = rh.jax.graph(
        lambda total, x: (total + x, {"loss": x}), total=np.float32(0), data=data, epochs=3
    )
    means = []
    with graph.as_default():
        mean = rh.epoch_mean("loss")
        hook = rh.CallHook(lambda it: means.append(float(it)), [mean], every_n_epochs=1)
        with rh.MonitoredSession(hooks=[hook]) as session:
            while not session.should_stop():
                session.run("train_op")
    assert means == [2.5] * 3
    # One more sets the sums to zero, and one divides them for the hook.
    assert sorted(compiled) == ["jit(fetches)", "jit(step)", "jit(step)"]


def train_nnx(fails_at=None, **arguments):
    def train_step(model, metrics, batch):
        loss = (model(batch[:, None]) ** 2).mean()
        metrics.update(loss=loss, values=batch)
        return {"loss": loss}

    graph = rh.jax.graph(
        train_step,
        model=nnx.Linear(1, 1, rngs=nnx.Rngs(0)),
        metrics=nnx.MultiMetric(loss=nnx.metrics.Average("loss"), x=nnx.metrics.Average("values")),
        data=[np.float32([it, it + 1]) for it in range(4)],
        epochs=3,
    )
    found = []
    with suppress(KilledError), graph.as_default():
        asked = [rh.epoch_metrics("metrics"), rh.epoch_mean("loss")]
        hook = rh.CallHook(lambda *values: found.append(values), asked, every_n_epochs=1)
        arguments = {"save_summaries_steps": None, "log_step_count_steps": None, **arguments}
        with rh.MonitoredTrainingSession(hooks=[hook], **arguments) as session:
            while not session.should_stop():
                session.run("train_op")
                if session.global_step == fails_at:
                    raise KilledError
    return [(float(it["loss"]), float(it["x"]), float(mean)) for it, mean in found]


def test_metrics_of_nnx_are_computed_and_reset_and_the_step_is_compiled_once(compiled):
    found = train_nnx()
    assert [x for _, x, _ in found] == [2.0] * 3
    assert [loss for loss, _, _ in found] == pytest.approx([it for _, _, it in found], rel=1e-6)
    # Two resets are small runs of their own, which begin each epoch; and the value for the hook.
    assert compiled == ["jit(step)", "jit(fetches)", "jit(step)", "jit(step)"]


@pytest.mark.parametrize("fails_at", [2, 4, 7])
def test_metrics_of_nnx_are_resumed(fails_at, tmp_path):
    undisturbed = train_nnx()
    arguments = {"checkpoint_dir": tmp_path, "save_checkpoint_steps": 1}
    assert train_nnx(fails_at, **arguments) + train_nnx(**arguments) == undisturbed


class Mean:
    """A metric as torchmetrics has them, in a few lines."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total, self.count = self.total + value, self.count + 1

    def compute(self):
        return self.total / self.count

    def state_dict(self):
        return {"total": self.total, "count": self.count}

    def load_state_dict(self, state):
        self.total, self.count = state["total"], state["count"]


def train_torch(fails_at=None, **arguments):
    metrics, found = Mean(), []

    def train_step(x):
        metrics.update(float(x))
        return {"x": x}

    data = [torch.tensor(float(it)) for it in range(4)]
    graph = rh.torch.graph(train_step, ["x"], data=data, epochs=3, metrics=metrics)
    with suppress(KilledError), graph.as_default():
        hook = rh.CallHook(found.append, [rh.epoch_metrics("metrics")], every_n_epochs=1)
        arguments = {"save_summaries_steps": None, "log_step_count_steps": None, **arguments}
        with rh.MonitoredTrainingSession(hooks=[hook], **arguments) as session:
            while not session.should_stop():
                session.run("train_op")
                if session.global_step == fails_at:
                    raise KilledError
    return found


@pytest.mark.parametrize("fails_at", [2, 4, 7])
def test_metrics_of_torch_are_computed_reset_and_resumed(fails_at, tmp_path):
    assert train_torch() == [1.5] * 3
    arguments = {"checkpoint_dir": tmp_path, "save_checkpoint_steps": 1}
    assert train_torch(fails_at, **arguments) + train_torch(**arguments) == [1.5] * 3


# mistakes


def test_what_needs_epochs_says_so():
    graph = rh.graph(lambda total: (total, {"loss": total}), total=0.0)
    with graph.as_default():
        with pytest.raises(ValueError, match=r"epoch_mean goes by epochs.*steps_per_epoch"):
            rh.epoch_mean("loss")
        with pytest.raises(ValueError, match=r"epoch_metrics goes by epochs"):
            rh.epoch_metrics("total")


def test_unknown_names_and_wrong_states_are_refused():
    graph = rh.jax.graph(lambda total, x: (total, {"loss": x}), total=0.0, data=[1.0, 2.0])
    with graph.as_default():
        with pytest.raises(ValueError, match="'nothing'"):
            rh.epoch_mean("nothing")
        with pytest.raises(ValueError, match="must be a state of the step"):
            rh.epoch_metrics("loss")


@pytest.mark.every_engine
def test_a_value_that_is_no_single_number_is_refused(engine):
    with graph_of(engine).as_default() as graph:
        rh.epoch_mean(graph["batch"], name="of_batches")
        with pytest.raises(ValueError, match="must be a single number"):
            with rh.MonitoredSession() as session:
                session.run("train_op")
