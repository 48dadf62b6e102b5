"""One rank of torch.distributed, given RANK SIZE FOLDER TASK...; writes what each task came to.

A task is the name of a function below and its arguments, such as ``train:fsdp:0:8``.
"""

import io
import json
import logging
import os
import signal
import sys
import time
from contextlib import nullcontext, suppress
from inspect import signature
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import runhooks as rh
from runhooks.checkpoint import attempts, restore_latest
from runhooks.errors import DeadlineExceededError
from runhooks.ranks import current_group
from runhooks.testing import RecordingHook

rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
torch.set_num_threads(1)


def start():
    """Join the group; rank 0 hosts its store at a port that the system chooses."""
    file = folder / f"port-{size}"
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
        part = file.with_suffix(".part")
        part.write_text(str(store.port))
        part.rename(file)
    else:
        while not file.exists():
            time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(file.read_text()), size, False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)


def network(exact):
    extra = [nn.BatchNorm1d(7), nn.Dropout(0.3)] if exact else []
    return nn.Sequential(nn.Linear(6, 7), *extra, nn.Tanh(), nn.Linear(7, 3, bias=False))


class Training:
    """A model of ``kind``, its optimizer, and a session of the graph of its step."""

    def __init__(self, kind, source, *, exact=False, seed=0):
        torch.manual_seed(seed)
        model = network(exact)
        if kind == "ddp":
            # Each rank keeps the statistics of the batches that it has seen.
            new = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
            sync = "forward_sync_buffers" if new else "broadcast_buffers"
            model = DistributedDataParallel(model, **{sync: False})
        elif kind == "fsdp":
            fully_shard(model[0])
            fully_shard(model)
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        torch.manual_seed(seed + 1 + rank)
        graph = rh.torch.Graph(model=model, optimizer=self.optimizer)
        with graph.as_default():
            batch = rh.inputs(source, 2, epochs=None if exact else 1)
            rh.torch.step(self.step, outputs=["loss"], args=batch)
        self.session, self.saver = rh.Session(graph), rh.Saver(asynchronous=True)

    def step(self, features, labels):
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(features), labels)
        loss.backward()
        self.optimizer.step()
        return {"loss": loss}

    def train(self, steps):
        losses = [self.session.run(["loss", "train_op"])[0] for _ in range(steps)]
        whole = torch.stack(losses)
        if dist.is_initialized():
            dist.all_reduce(whole)
        return [it.item() for it in losses], (whole / size).tolist()

    def state(self):
        """All tensors of this rank, by name."""
        found = {}
        for name, tensor in self.model.state_dict().items():
            found[name.removeprefix("module.")] = tensor
        for i, state in self.optimizer.state_dict()["state"].items():
            found |= {f"{i}/{key}": tensor for key, tensor in state.items()}
        return {k: (it.to_local() if hasattr(it, "to_local") else it) for k, it in found.items()}

    def whole(self):
        """All parameters in full."""
        found = {}
        for name, parameter in self.model.named_parameters():
            whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
            found[name.removeprefix("module.")] = whole.tolist()
        return found


def examples(count):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, 6, generator=generator), torch.arange(count) % 3


def loader():
    data = TensorDataset(*examples(30))
    sampler = DistributedSampler(data, size, rank, seed=3)
    return StatefulDataLoader(data, batch_size=3, sampler=sampler)


def parts(step):
    """This rank's part of the batches of 12 from ``step`` on, the same on any number of ranks."""
    while True:
        features, labels = examples(12 * (step + 1))
        mine = slice(12 * step + rank, None, size)
        yield features[mine], labels[mine]
        step += 1


def exact(kind):
    """8 steps, saved, and 8 more in other objects, against 16."""
    path = folder / f"exact-{kind}"
    straight = Training(kind, loader(), exact=True)
    losses = straight.train(16)[0]
    first = Training(kind, loader(), exact=True)
    begun = first.train(8)[0]
    first.saver.save(first.session, path / "model.ckpt", 8)
    first.train(3)  # while it is being written
    first.saver.wait()
    again = Training(kind, loader(), exact=True, seed=100)
    assert restore_latest(again.saver, again.session, path) == str(path / "model.ckpt-8")
    begun += again.train(8)[0]
    ours, theirs = again.state(), straight.state()
    return {
        "losses": begun == losses,
        "names": sorted(ours) == sorted(theirs),
        "differing": [name for name, it in ours.items() if not torch.equal(it, theirs[name])],
        "step": again.session.global_step,
        "written": sum(
            array.nbytes
            for file in (path / "model.ckpt-8").glob("attempt-*")
            for name, array in safetensors.torch.load_file(file).items()
            if not name.startswith("__states__/") and name != "blocks"
        ),
        "drawn": torch.rand(1).item(),
    }


def train(kind, first, last):
    """Go on from step ``first`` to ``last``, and save there."""
    first, last = int(first), int(last)
    it = Training(kind, parts, seed=first)
    if first:
        it.saver.restore(it.session, folder / f"model.ckpt-{first}")
        assert it.session.global_step == first
    begun = it.whole()
    losses = it.train(last - first)[1]
    it.saver.save(it.session, folder / "model.ckpt", last)
    it.saver.wait()
    return {"losses": losses, "begun": begun, "ended": it.whole(), "drawn": torch.rand(1).item()}


class Accumulating:
    """Two runs that accumulate gradients, of each rank its own with DDP, and one that applies."""

    def __init__(self, kind, counts=False):
        torch.manual_seed(0)
        self.model = nn.Linear(6, 3)
        if kind == "ddp":
            self.model = DistributedDataParallel(self.model)
        elif kind == "fsdp":
            fully_shard(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        graph = rh.torch.Graph(model=self.model, optimizer=self.optimizer)
        with graph.as_default():
            rh.torch.step(self.update)
            rh.torch.step(self.accumulate, name="accumulate", counts=counts)
        self.session = rh.Session(graph)

    def backward(self, number):
        self.model(torch.linspace(0, rank + number, 6)).square().sum().backward()

    def accumulate(self, number):
        with getattr(self.model, "no_sync", nullcontext)():
            self.backward(number)

    def update(self, number):
        self.backward(number)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def run(self, numbers):
        for number in numbers:
            name = "train_op" if number % 3 == 2 else "accumulate"
            self.session.run(name, {"number": number})
        return self


def pending(kind):
    """Saved in the middle of an accumulation, and resumed."""
    same = []
    for counts in (True, False):
        straight, stopped, resumed = (Accumulating(kind, counts) for _ in range(3))
        straight.run(range(9))
        path = rh.Saver().save(stopped.run(range(5)).session, folder / f"pending-{kind}")
        rh.Saver().restore(resumed.session, path)
        resumed.run(range(5, 9))
        pairs = zip(straight.model.parameters(), resumed.model.parameters(), strict=True)
        local = [[getattr(it, "to_local", it.detach)() for it in pair] for pair in pairs]
        same += [torch.equal(*pair) for pair in local]
    return {"same": same}


def take_pending(kind):
    """What another number of ranks makes of that."""
    try:
        rh.Saver().restore(Accumulating(kind).session, folder / f"pending-{kind}")
    except ValueError as error:
        return str(error)
    return "restored"


def unexchanged():
    """What is logged of checkpoints before, between and after gradients that FSDP keeps."""
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("runhooks").addHandler(handler)
    it = Accumulating("fsdp", counts=True)
    counts = []
    for number in range(6):
        it.model.set_requires_gradient_sync(number % 3 == 2)
        rh.Saver().save(it.run([number]).session, folder / "unexchanged")
        counts.append(len(said))
    exchanging = Accumulating("fsdp", counts=True).run(range(2))
    rh.Saver().save(exchanging.session, folder / "unexchanged")
    logging.getLogger("runhooks").removeHandler(handler)
    return {"said": said, "counts": counts}


def mesh():
    """Tensors in all ways on a mesh of 2 x 2, and back in other ways."""
    grid = init_device_mesh("cpu", (2, 2))
    ways = [
        (Shard(0), Shard(1)),
        (Replicate(), Shard(0)),
        (Shard(1), Replicate()),
        (Shard(0), Shard(0)),
        (Replicate(), Replicate()),
    ]
    values = torch.arange(35.0).reshape(5, 7)

    def tensors(values, ways):
        spread = [distribute_tensor(values + i, grid, way) for i, way in enumerate(ways)]
        model = nn.ParameterList([nn.Parameter(it, requires_grad=False) for it in spread])
        return model, rh.Session(rh.torch.graph(lambda: None, model=model))

    _, session = tensors(values, ways)
    path = rh.Saver().save(session, folder / "mesh" / "model.ckpt")
    model, session = tensors(torch.zeros(5, 7), ways[1:] + ways[:1])
    rh.Saver().restore(session, path)
    wholes = [it.full_tensor() for it in model]
    (file,) = Path(path).glob(f"attempt-*-{rank}.safetensors")
    written = safetensors.torch.load_file(file)
    return {
        "same": [torch.equal(it, values + i) for i, it in enumerate(wholes)],
        "placements": [tuple(it.placements) for it in model] == ways[1:] + ways[:1],
        "written": sum(it.numel() for name, it in written.items() if name.startswith("model/")),
    }


def die():
    """Save step 17; rank 1 is killed in the middle of that."""
    it = Training("fsdp", parts)

    def write(path, content):
        if rank == 1:
            (folder / "dying").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        current_group().barrier_secs = 60 if rank else 2
        return write_file(path, content)

    write_file, attempts.write_file = attempts.write_file, write
    it.saver.save(it.session, folder / "model.ckpt", 17)
    try:
        it.saver.wait()
    except DeadlineExceededError as error:
        while not (folder / "dying").exists():  # it hosts the store, and must not leave first
            time.sleep(0.01)
        return {"error": str(error), "left": sorted(it.name for it in folder.glob("*ckpt-17*"))}


def epochs(first, steps):
    """Go on from step ``first`` with a plain loader, up to 3 epochs; numbers drawn, their means."""
    logging.basicConfig(level=logging.INFO)
    first, steps = int(first), int(steps)
    data = torch.arange(12.0)
    loader = DataLoader(data, 2, sampler=DistributedSampler(data, size, rank))
    model, drawn, means = nn.Linear(1, 1), [], []

    def step(x):
        drawn.append(x.tolist())
        return x.mean()

    graph = rh.torch.graph(step, ["middle"], data=loader, epochs=3, model=model)
    with graph.as_default():
        mean = rh.epoch_mean("middle")
    session = rh.Session(graph)
    if first:
        rh.Saver().restore(session, folder / f"epochs.ckpt-{first}")
    with suppress(rh.errors.OutOfRangeError):
        for _ in range(steps):
            means.append(float(session.run(("train_op", mean))[1]))
    rh.Saver().save(session, folder / "epochs.ckpt", session.global_step)
    return [[it for batch in drawn for it in batch], means]


def counted(first, steps):
    """Go on from step ``first`` with what is fed by hand, an epoch of 6 steps; the last mean."""
    graph = rh.torch.graph(lambda x: x, ["x"], steps_per_epoch=6, model=nn.Linear(1, 1))
    with graph.as_default():
        mean = rh.epoch_mean("x")
    session = rh.Session(graph)
    if int(first):
        rh.Saver().restore(session, folder / f"counted.ckpt-{first}")
    for step in range(int(first), int(first) + int(steps)):
        fed = {"x": torch.tensor(float(step + 10 * rank))}
        _, found = session.run(("train_op", mean), fed)
    rh.Saver().save(session, folder / "counted.ckpt", session.global_step)
    return float(found)


def trained_both_ways(name, layers, hooks, **options):
    """Train a model of ``layers()``, whole and sharded, with ``hooks()``; yield what came of it.

    That is the kind, the hooks and the directory.
    """
    for kind in ("whole", "fsdp"):
        torch.manual_seed(0)
        model, directory = nn.Sequential(*layers()), folder / f"{name}-{kind}"
        if kind == "fsdp":
            fully_shard(model[0])
            fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            model(torch.linspace(0, 1, 24).reshape(4, 6)).square().sum().backward()
            optimizer.step()

        with rh.torch.graph(step, model=model, optimizer=optimizer).as_default():
            made = hooks()
            with rh.MonitoredTrainingSession(
                checkpoint_dir=str(directory), hooks=made, **options
            ) as session:
                while not session.should_stop():
                    session.run("train_op")
        yield kind, made, directory


def averages():
    """Moving averages of parameters that are sharded, and of buffers that are not."""
    found = {
        kind: rh.load(directory, "ema")["model"]
        for kind, _, directory in trained_both_ways(
            "averages",
            lambda: [nn.Linear(6, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)],
            lambda: [rh.EmaHook("model", decay=0.5), rh.StopAtStepHook(last_step=5)],
        )
    }
    return {name: bool(np.allclose(it, found["fsdp"][name])) for name, it in found["whole"].items()}


def norms():
    """The norms of gradients that summaries and hooks get of a model, whole and sharded."""

    def hooks():
        rh.summary.gradient_norms("gradients/model")
        kept = RecordingHook(fetches="global_gradient_norm")
        shown = rh.ProgressHook(3, "global_gradient_norm", stream=io.StringIO())
        return [kept, shown, rh.StopAtStepHook(last_step=3)]

    found = {}
    for kind, (kept, *_), directory in trained_both_ways(
        "norms",
        lambda: [nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3)],
        hooks,
        save_summaries_steps=1,
    ):
        found[kind] = {"fetched": [float(it) for it in kept.results]}
        if rank == 0:  # it alone has written, and knows that it has
            scalars = rh.events.read(directory).only.scalars
            found[kind]["written"] = {
                tag: it.values.tolist() for tag, it in scalars.items() if "norm" in tag
            }
    return found


TASKS = [
    averages,
    norms,
    epochs,
    counted,
    exact,
    train,
    pending,
    take_pending,
    unexchanged,
    mesh,
    die,
]
if size > 1:
    start()
current_group().barrier_secs = 60
results = {}
for task in sys.argv[4:]:
    name, *words = task.split(":")
    (function,) = (it for it in TASKS if it.__name__ == name)
    results[task] = function(*words)
(folder / f"results-{size}-{rank}.json").write_text(json.dumps(results))
if size > 1 and "die" not in results:
    if rank:
        current_group().set(f"left/{rank}", "")
    else:  # the host of the store leaves last
        for other in range(1, size):
            current_group().listen(f"left/{other}")
    dist.destroy_process_group()
