"""Values that are spread over several devices, or stand on each of them, are read like others."""

import pytest

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import runhooks as rh
from runhooks import events

jax.config.update("jax_num_cpu_devices", 8)
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
zero = jax.device_put(jnp.float32(0), NamedSharding(mesh, P()))


def train(sharding, late, folder, last_step):
    ones = jax.device_put(jnp.ones((8, 4)), sharding)
    with rh.Graph("jax").as_default():
        w, count = rh.Variable(ones, name="w"), rh.Variable(zero, name="count")
        loss = rh.call(lambda w, count: jnp.where(count > 3.5, jnp.nan, w.sum()), w, count)
        step = rh.train.create_global_step().assign_add(1)
        op = rh.group(w.assign(w + 1), count.assign_add(1.0), step)
        rh.summary.scalar("loss", loss)
        rh.summary.histogram("w", w)
        hooks = [
            rh.NanTensorHook(loss, late=late),
            rh.LoggingTensorHook({"loss": loss, "w": w}, every_n_iter=1),
            rh.StopAtStepHook(last_step=last_step),
        ]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, save_checkpoint_steps=2, save_summaries_steps=1
        ) as session:
            while not session.should_stop():
                session.run(op)
                fetched = session.run(w, hooks=False)
                assert fetched.sharding == sharding
                assert (np.asarray(fetched) == 1 + session.global_step).all()


for number, spec in enumerate([P(), P("a"), P(None, "b"), P("a", "b")]):
    for late in (False, True):
        case = NamedSharding(mesh, spec), late, f"{sys.argv[1]}/{number}-{late}"
        train(*case, 2)
        train(*case, 4)
        scalars = events.read(case[2])["."].scalars["loss"]
        assert scalars.values.tolist() == [32, 64, 96, 128], (case, scalars)
        try:
            train(*case, 6)
        except rh.train.NanLossDuringTrainingError as error:
            print("NaN in step", error.step)
"""


RESUMED = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import runhooks as rh

jax.config.update("jax_num_cpu_devices", 8)
mesh = Mesh(np.array(jax.devices()), ("d",))
random = np.random.default_rng(0)
start = random.normal(size=(2, 4104, 64)).astype(np.float32) / 20
data = [random.normal(size=(16, 4104)).astype(np.float32) for _ in range(12)]


def create():  # on each device, and spread over all
    w, v = (jax.device_put(it, NamedSharding(mesh, P(*spec))) for it, spec in zip(start, [[], "d"]))
    return {"w": w, "v": v}


def train_step(params, x):
    def loss_of(params):
        norm = jnp.sqrt(jnp.sum(params["w"] ** 2))
        return jnp.mean((jnp.tanh(x @ params["w"]) - 1) ** 2) + norm

    loss, grads = jax.value_and_grad(loss_of)(params)
    w = params["w"] - 0.05 * grads["w"]
    return {"w": w, "v": 0.9 * params["v"] + 0.1 * w}, {"loss": loss}


def train(folder, *stops):
    losses = []
    for last in stops:
        graph = rh.jax.graph(train_step, params=create, data=data)
        arguments = {"checkpoint_dir": folder, "hooks": [rh.StopAtStepHook(last_step=last)]}
        with graph.as_default(), rh.MonitoredTrainingSession(**arguments) as session:
            while not session.should_stop():
                losses.append(float(session.run({"op": "train_op", "loss": "loss"})["loss"]))
                assert session.run("params/w", hooks=False).sharding.spec == P()
    return losses


assert train(f"{sys.argv[1]}/resumed", *range(2, 13, 2)) == train(f"{sys.argv[1]}/undisturbed", 12)
"""


@pytest.mark.slow
def test_a_state_keeps_its_sharding_and_a_resumed_run_its_bits(jax_launcher, tmp_path):
    status, said = jax_launcher.run(tmp_path, RESUMED, tmp_path)
    assert status == 0, said


@pytest.mark.slow
def test_training_over_eight_devices(jax_launcher, tmp_path):
    status, said = jax_launcher.run(tmp_path, PROGRAM, tmp_path)
    assert status == 0, said
    assert said.count("NaN in step") == 8
