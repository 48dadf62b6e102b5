"""One process of jax.distributed, given RANK SIZE PORT FOLDER TASK...; writes what each came to.

A task is ``train:MESH:FIRST:LAST`` or ``exact:MESH``; MESH is ``data`` or ``model``: the dimension
of the weights that is cut, or ``both``.
"""

import json
import sys
from pathlib import Path

import jax

rank, size, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4 // size)
if size > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", size, rank)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import runhooks as rh  # noqa: E402
from runhooks.checkpoint import restore_latest  # noqa: E402

MESHES = {
    "data": ((4, 1), ("x", None)),
    "model": ((1, 4), (None, "y")),
    "both": ((2, 2), ("x", "y")),
}


def spread(mesh, values, spec):
    """An array that all processes hold together."""
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


class Training:
    def __init__(self, kind, seed=0):
        shape, spec = MESHES[kind]
        mesh = jax.make_mesh(shape, ("x", "y"))
        rng = np.random.default_rng(seed)
        state = {
            "w": spread(mesh, rng.normal(size=(8, 12)).astype(np.float32), spec),
            "b": spread(mesh, rng.normal(size=12).astype(np.float32), ()),
            "keys": spread_keys(mesh, seed),
        }
        graph = rh.Graph(engine="jax")
        with graph.as_default():
            self.state = rh.Variable(state, name="state")
            table = np.arange(4 << 17, dtype=np.float32).reshape(4, -1) + seed
            self.table = rh.Variable(spread(mesh, table, ()), name="table")
            self.own = rh.Variable(jnp.full(3, float(rank + 10 * seed)), name="own")
            batch = rh.inputs(lambda step: iter_batches(mesh, step), name="batches")
            new, loss = rh.call(self.step, self.state, batch, num_outputs=2)
            step = rh.train.get_or_create_global_step()
            self.fetches = [loss, rh.group(self.state.assign(new), step.assign_add(1))]
        self.session, self.saver = rh.Session(graph), rh.Saver(asynchronous=True)

    @staticmethod
    def step(state, batch):
        noise = jax.vmap(lambda key: jax.random.normal(key, (12,)))(state["keys"]).mean(0)

        def loss_of(w, b):
            return jnp.mean((jnp.tanh(batch @ w + b) - 0.01 * noise) ** 2)

        loss, (dw, db) = jax.value_and_grad(loss_of, (0, 1))(state["w"], state["b"])
        keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(state["keys"])
        new = {"w": state["w"] - 0.5 * dw, "b": state["b"] - 0.5 * db, "keys": keys}
        return new, loss

    def train(self, steps):
        return [float(self.session.run(self.fetches)[0]) for _ in range(steps)]

    def value(self, name):
        """What this process has of a part of the state."""
        shards = self.session.run(self.state)[name].addressable_shards
        return [np.asarray(it.data).tolist() for it in shards]


def spread_keys(mesh, seed):
    data = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(seed), 4)))
    sharding = NamedSharding(mesh, PartitionSpec(("x", "y")))
    made = jax.make_array_from_callback(data.shape, sharding, lambda index: data[index])
    return jax.jit(jax.random.wrap_key_data)(made)


def iter_batches(mesh, step):
    while True:
        values = np.random.default_rng(step).normal(size=(4, 8)).astype(np.float32)
        yield spread(mesh, values, ())
        step += 1


def exact(kind):
    path = folder / f"exact-{kind}-{size}"
    straight = Training(kind)
    losses = straight.train(8)
    first = Training(kind)
    begun = first.train(4)
    first.saver.save(first.session, path / "model.ckpt", 4)
    first.train(2)  # which is given the buffers of the state
    first.saver.wait()
    again = Training(kind, seed=5)
    assert restore_latest(again.saver, again.session, path) == str(path / "model.ckpt-4")
    begun += again.train(4)
    values = {name: [it.value(name) for it in (again, straight)] for name in ("w", "b")}
    return {
        "losses": losses,
        "same": begun == losses,
        "differing": [name for name, (one, other) in values.items() if one != other],
        "table": float(again.session.run(again.table).addressable_data(0)[3, -1]),
        "own": np.asarray(again.session.run(again.own)).tolist(),
    }


def train(kind, first, last):
    first, last = int(first), int(last)
    it = Training(kind, seed=first)
    if first:
        it.saver.restore(it.session, folder / f"model.ckpt-{first}")
        assert it.session.global_step == first
    losses = it.train(last - first)
    it.saver.save(it.session, folder / "model.ckpt", last)
    it.saver.wait()
    return {"losses": losses, "own": np.asarray(it.session.run(it.own)).tolist()}


results = {}
for task in sys.argv[5:]:
    name, *words = task.split(":")
    results[task] = {"exact": exact, "train": train}[name](*words)
(folder / f"results-{size}-{rank}.json").write_text(json.dumps(results))
if size > 1:
    jax.distributed.shutdown()  # all leave together
