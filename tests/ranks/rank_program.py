"""One rank of torch.distributed that trains, and what happens to it; see ``ranks.py``.

``rank_program.py FOLDER host`` hosts the store of all groups. ``rank_program.py FOLDER CASE RANK
SIZE EVENTS`` trains as a rank and writes what became of it to ``CASE-RANK.json``. ``EVENTS`` is a
dict: ``at`` has the events, by rank and run, that ``happen`` knows.
"""

import faulthandler
import json
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import runhooks as rh
from runhooks.ranks import current_group

DEADLINE_SECS = 100  # of gloo: half an hour


def connected(folder, file="port"):
    file = folder / file
    while not file.exists():
        time.sleep(0.01)
    return dist.TCPStore("127.0.0.1", int(file.read_text()), None, False)


def hosted(folder, file="port"):
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    part = folder / f"{file}.part"
    part.write_text(str(store.port))
    part.rename(folder / file)
    return store


def host(folder):
    store = hosted(folder)  # noqa: F841 - it lives as long as this
    while True:
        time.sleep(1000)


class Events(rh.SessionRunHook):
    """Lets happen what is to happen to this rank after a run, and counts the runs.

    ``mark`` is the file with which one rank says that it has come to something for which another
    waits. At minus a number, it happens before that run.
    """

    def __init__(self, at, marks, mark):
        self.at = {int(run): event for run, event in at.items()}
        self.marks, self.mark, self.runs = marks, mark, 0

    def before_run(self, run_context):
        self.happen(-self.runs - 1, run_context)

    def after_run(self, run_context, run_values):
        self.runs += 1
        self.happen(self.runs, run_context)

    def happen(self, run, run_context):
        event = self.at.get(run)
        if event is None:
            return
        (self.marks / f"{os.getpid()}").write_text(str(time.time()))
        if event == "raise":
            raise ValueError("it broke")
        if event == "stop":
            run_context.request_stop("enough")
        elif event == "sleep":
            time.sleep(0.3)
        elif event == "mark":
            self.mark.touch()
        elif event == "wait for the mark":
            wait_for(self.mark)
        elif event == "wait":
            wait_for(self.marks / "go")
            run_context.request_stop("enough")
        elif event == "hang":
            time.sleep(1000)
        else:
            os.kill(os.getpid(), signal.Signals[event])


def wait_for(path):
    while not path.exists():
        time.sleep(0.001)


class Beats(rh.SessionRunHook):
    """Asks to stop once the group has had so many signs of life of rank 0."""

    def __init__(self, beats):
        self.beats = beats

    def after_run(self, run_context, run_values):
        if int(current_group().get("beat/0") or 0) >= self.beats:
            run_context.request_stop("it beats")


def connections(folder):
    """How many connections this process has to the host of the store."""
    port, count = int((folder / "port").read_text()), 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # no socket, or one without a peer
            count += peer_of(int(file.name))[1:2] == (port,)
    return count


def peer_of(descriptor):
    """The address at the other end of a socket."""
    it = socket.socket(fileno=descriptor)
    try:
        return it.getpeername()
    finally:
        it.detach()


class Connections(rh.SessionRunHook):
    """Counts the connections to the host of the store after each run, and at the end."""

    def __init__(self, folder):
        self.folder, self.counts = folder, [connections(folder)]

    def after_run(self, run_context, run_values):
        self.counts.append(connections(self.folder))

    def end(self, session):
        self.counts.append(connections(self.folder))


def die_saving(rank, number):
    """Let the disk kill the process of ``rank`` at that many files of checkpoints."""
    fsync, files = os.fsync, []

    def killing(descriptor):
        file = Path(f"/proc/self/fd/{descriptor}").readlink().name
        if current_group().rank == rank and file.startswith("attempt-"):
            files.append(file)
            if len(files) == number:
                os.kill(os.getpid(), signal.SIGKILL)
        fsync(descriptor)

    os.fsync = killing


class CountsCalls(rh.SessionRunHook):
    """A hook by seconds that notes the steps at which it acts, and stops at the third."""

    def __init__(self, secs):
        self.timer = rh.Timer(rh.Trigger(every_secs=secs))
        self.acted = []

    def begin(self):
        self.timer.reset()

    def after_create_session(self, session, coord):
        self.timer.start(session.global_step)

    def next_due(self):
        return self.timer.due()

    def after_run(self, run_context, run_values):
        step = run_context.session.global_step
        if self.timer.should_trigger_for_step(step):
            self.timer.update_last_triggered_step(step)
            self.acted.append(step)
            if len(self.acted) == 3:
                run_context.request_stop("acted three times")


def mark_what_it_heard_of(rank, mark):
    """Let rank 0 make the file ``mark`` when it knows which run ``rank`` has begun last."""
    from runhooks.ranks.decisions import Proposals

    take = Proposals.take_begun

    def taking(self, sender, number, run):
        take(self, sender, number, run)
        if sender == rank:
            mark.touch()

    Proposals.take_begun = taking


def shift_clock(secs):
    import runhooks.clock as clock

    monotonic, wall = time.monotonic, time.time
    clock.monotonic = lambda: monotonic() + secs
    clock.wall = lambda: wall() + secs


def train(folder, case, rank, size, events):
    if events.get("rank_0_hosts"):
        store = hosted(folder, case) if rank == 0 else connected(folder, case)
    else:
        store = dist.PrefixStore(case, connected(folder))
    if "dies_saving" in events:
        die_saving(*events["dies_saving"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    dist.barrier()  # a rank that ends before the others are connected to it fails them
    group = current_group()
    group.grace_secs = events.get("grace_secs", 30.0)
    group.barrier_secs = events.get("barrier_secs", 60.0)
    group.silence_secs = events.get("silence_secs", 60.0)
    shift_clock(events.get("clock", {}).get(str(rank), 0))
    ranks_events = events.get("at", {}).get(str(rank), {})
    found = {"error": None, "secs": None}
    mark = folder / f"{case}.mark"
    hook = Events(ranks_events, folder, mark)
    if "marks_what_it_heard_of" in events:
        mark_what_it_heard_of(events["marks_what_it_heard_of"], mark)
    hooks = [hook, *more_hooks(events, rank)]
    if events.get("counts_connections"):
        hooks.append(counting := Connections(folder))
        found["connections"] = counting.counts
    batches = events.get("batches", {}).get(str(rank), 10**6)
    try:
        if "asks_for" in events:
            run_sharded(events["asks_for"], hooks, found, on_chief=events.get("on_chief"))
        elif "parts" in events:
            run_in_parts(events["parts"], hooks, found)
        elif "iterations" in events:
            run_in_iterations(folder / case, hooks, found, **events["iterations"])
        elif rank not in events.get("absent", ()):
            run(folder, case, rank, events, hooks, batches, found)
    except Exception as error:  # noqa: BLE001 - the test looks at it
        found["error"] = [type(error).__name__, str(error)]
        found["notes"] = getattr(error, "__notes__", [])
        found["cause"] = type(error.__cause__).__name__
    found["runs"] = hook.runs
    found["acted"] = [it.acted for it in hooks if isinstance(it, CountsCalls)]
    found["at"] = time.time()
    part = folder / f"{case}-{rank}.part"
    part.write_text(json.dumps(found))
    part.rename(folder / f"{case}-{rank}.json")


def more_hooks(events, rank):
    if "every_secs" in events:
        yield CountsCalls(events["every_secs"])
    if "beats" in events:
        yield Beats(events["beats"])
    if "time_limit" in events:
        yield rh.TimeLimitHook(events["time_limit"])
    if "last_step" in events:
        yield rh.StopAtStepHook(last_step=events["last_step"])
    if rank in events.get("more_on", ()):
        yield rh.TimeLimitHook(1000)


class AsksOnChief(rh.SessionRunHook):
    runs_on = "chief"

    def __init__(self, name):
        self.name = name

    def before_run(self, run_context):
        return rh.SessionRunArgs(self.name)


def run_sharded(name, hooks, found, on_chief):
    """Train a module of which each rank holds a part, while hooks ask for ``name`` of it."""
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Linear(4, 4)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    graph = rh.torch.graph(step, outputs=["loss"], model=model, optimizer=optimizer)
    asking = AsksOnChief(name) if on_chief else rh.LoggingTensorHook([name], every_n_iter=1)
    measuring = rh.HookTimesHook(every_n_steps=1)
    hooks += [rh.StopAtStepHook(last_step=2), asking, measuring]
    with graph.as_default(), rh.MonitoredTrainingSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run("train_op", {"x": torch.ones(2, 4)})
    found["measured"] = list(measuring.times)


def run_in_parts(parts, hooks, found):
    """Train a module in steps of so many runs, whose gradients accumulate."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def accumulate():
        model(torch.ones(1, 2)).sum().backward()
        time.sleep(0.002)

    def update():
        accumulate()
        optimizer.step()
        optimizer.zero_grad()

    graph = rh.torch.Graph(model=model, optimizer=optimizer)
    with graph.as_default():
        rh.torch.step(accumulate, name="accumulate", counts=False)
        rh.torch.step(update)
        with rh.MonitoredTrainingSession(hooks=hooks) as session:
            runs = 0
            while not session.should_stop():
                runs += 1
                session.run("accumulate" if runs % parts else "train_op")
        found["step"], found["reason"] = session.global_step, session.stop_reason


def run_in_iterations(folder, hooks, found, runs, is_asked=True):
    """Train in iterations of so many runs each, each of which needs all ranks."""

    def step(total):
        data = torch.tensor([total])
        dist.all_reduce(data)
        return int(data) % 2**31 + 1

    found["iterations"] = 0
    graph = rh.graph(step, total=1)
    with graph.as_default():
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder,
            hooks=hooks,
            saver=rh.Saver(keep=[rh.KeepLast(1000)]),
            save_checkpoint_steps=1,
            log_step_count_steps=None,
        ) as session:
            while not (is_asked and session.should_stop()):
                with session.iteration():
                    for _ in range(runs):
                        session.run("train_op")
                found["iterations"] += 1
    found["step"], found["reason"] = session.global_step, session.stop_reason


def run(folder, case, rank, events, hooks, batches, found):
    with rh.Graph().as_default():
        step = rh.train.get_or_create_global_step()
        if "nan" in events:
            value = rh.placeholder("value", shape=(), dtype=float)
            hooks.insert(0, rh.NanTensorHook(value))
        if events.get("other_name") == rank:
            rh.call(lambda: 1.0, name="other")
        total = rh.Variable(np.int64(0), name="total")
        inputs = [rh.inputs(range(batches))] if events.get("draws") else []

        def work(number, total, *drawn):
            data = torch.tensor([1000 * int(number) + rank])
            if events.get("collective", True):
                dist.all_reduce(data)
            time.sleep(events.get("step_secs", 0.002))
            return number + 1, (total * 31 + int(data)) % 2**31

        new_step, new_total = rh.call(work, step, total, *inputs, num_outputs=2)
        op = rh.group(step.assign(new_step), total.assign(new_total))
        options = {} if "is_chief" not in events else {"is_chief": events["is_chief"][rank]}
        checkpoints = folder / events.get("directory", case) if events.get("saves") else None
        loader = iter(range(10**6 if inputs else batches))
        saver = rh.Saver(asynchronous=events.get("asynchronous", False))
        with rh.MonitoredTrainingSession(
            hooks=hooks,
            checkpoint_dir=checkpoints,
            scaffold=rh.Scaffold(saver=saver),
            save_checkpoint_secs=None if "save_steps" in events else events.get("saves"),
            save_checkpoint_steps=events.get("save_steps"),
            log_step_count_steps=None,
            **options,
        ) as session:
            found["started"] = True
            (folder / f"{case}-{rank}.started").write_text(str(os.getpid()))
            while not session.should_stop():
                number = next(loader, None)
                if number is None:
                    if events.get("ends_after_the_mark"):
                        wait_for(folder / f"{case}.mark")
                    break
                if number == events.get("loader_raises", {}).get(str(rank)):
                    raise ValueError("the loader broke")
                feeds = {}
                if "nan" in events:
                    is_nan = events["nan"] == [rank, number]
                    feeds = {value: float("nan") if is_nan else 1.0}
                session.run([op, value] if feeds else op, feeds)
            found["reason"] = session.stop_reason
            found["step"] = session.global_step
            found["total"] = int(session.run(total, hooks=False))


if __name__ == "__main__":
    faulthandler.dump_traceback_later(DEADLINE_SECS, exit=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    place = Path(sys.argv[1])
    if sys.argv[2] == "host":
        faulthandler.cancel_dump_traceback_later()
        host(place)
    train(place, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5]))
