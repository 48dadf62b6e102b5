"""Random programs in the shapes of public ones, each held against its own plain loop, bit for bit.

A program is a plan: a dict that a seed draws. It says what the step takes and returns, where its
data comes from, which hooks ask, sleep, watch, log, write and evaluate, and what other threads do
meanwhile. All numbers are whole and small, so that they are exact wherever they are computed: a
step made twice, a state in another's place or a random number too many shows in all that follows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import random
import threading
import traceback
from collections import namedtuple

import numpy as np

import runhooks as rh
from runhooks.testing import read_events

M = 1009
STATES = ["weights", "average", "moment"]
SOURCES = ["feed", "list", "generator", "of the step", "own random", "numpy random", "random"]


def drawn_plan(engine, seed, *, workers):
    """Draw the plan of a program."""
    if engine == "tensorflow":
        return _module(engine).drawn_plan(engine, seed)
    chance = random.Random(f"{engine} {seed}")
    torch = engine == "torch"
    source = chance.choice([*SOURCES, "loader", "loader"] if torch else SOURCES)
    states = chance.sample(STATES, chance.randint(1, 3))
    names = [*states, "loss", "grads"]
    inner = chance.choice([0, 0, 2, 3]) if source == "feed" else 0
    noise = chance.choice(["none", "global", "own"]) if engine == "numpy" else "none"
    plan = {
        "engine": engine,
        "seed": seed,
        "states": states,
        "objects": engine == "jax" and chance.random() < 0.25,
        "parameters": chance.sample(["x", "y"], 2),
        "batch": source != "feed" and chance.random() < 0.3,
        "element": chance.choice(["tuple", "dict", "named tuple"]),
        "fields": chance.sample(["x", "y"], 2),
        "returns": chance.choice(["states, dict", "outputs", "dict", "named tuple", "dataclass"]),
        "order": chance.sample(names, len(names)),
        "source": source,
        "workers": chance.choice([0, 0, 2]) if workers and source == "loader" else 0,
        "elements": chance.randint(3, 8),
        "epochs": chance.randint(1, 3),
        "noise": chance.choice(["none", "global"]) if torch else noise,
        "inner": inner,
        "fetches": chance.sample(["loss", "grads", *states], chance.randint(0, 2)),
        "looks": chance.choice([0, 0, 1, 2]),
        "beside": chance.choice([0, 0, 1, 3]),
        "hooks": [_drawn_hook(chance, [*names, "x", "y"]) for _ in range(chance.randint(0, 4))],
        "stop": None,
    }
    if not inner and source not in ("generator",) and "global" not in plan["noise"]:
        plan["stop"] = chance.choice([None, 1, 2, 3])
    if torch or source in ("numpy random", "random"):
        plan["stop"] = None
    return plan


def _drawn_hook(chance, names):
    kind = chance.choice(["asks", "asks", "sleeps", "watches", "logs", "reads", "feeds"])
    evaluations = ["evaluates", "evaluation as summary", "evaluation asked", "evaluation logged"]
    kind = chance.choice([kind] * 5 + ["writes", "nan", *evaluations])
    return {
        "kind": kind,
        "names": chance.sample(names, chance.randint(1, 2)),
        "every": chance.randint(1, 4),
    }


def smaller(plan):
    """Yield plans that have one thing less."""
    for at in range(len(plan["hooks"])):
        yield plan | {"hooks": plan["hooks"][:at] + plan["hooks"][at + 1 :]}
    plain = {
        "objects": False,
        "beside": 0,
        "looks": 0,
        "stop": None,
        "epochs": 1,
        "fetches": [],
        "workers": 0,
    }
    plain |= {"inner": 0, "noise": "none", "batch": False, "element": "tuple", "source": "list"}
    plain |= {"returns": "states, dict", "elements": 3}
    for key, value in plain.items():
        if plan[key] != value:
            yield plan | {key: value}
    if len(plan["states"]) > 1:
        states = plan["states"][:-1]
        order = [name for name in plan["order"] if name != plan["states"][-1]]
        lost = {plan["states"][-1]}
        hooks = [h | {"names": [n for n in h["names"] if n not in lost]} for h in plan["hooks"]]
        hooks = [h | {"names": h["names"] or ["loss"]} for h in hooks]
        fetches = [name for name in plan["fetches"] if name not in lost]
        yield plan | {"states": states, "order": order, "hooks": hooks, "fetches": fetches}


def check(plan, folder):
    """Make the program both ways; raise AssertionError, with the smallest plan, if they differ."""
    found = difference(plan, folder / "0")
    if found is None:
        return
    count, shrinks = 1, True
    while shrinks:
        shrinks = False
        for less in _module(plan["engine"]).smaller(plan):
            count += 1
            less_found = difference(less, folder / str(count))
            if less_found is not None:
                plan, found, shrinks = less, less_found, True
                break
    step = "" if plan["engine"] == "tensorflow" else source_of(plan)
    raise AssertionError(f"{found}\n\nSOAK_PLAN='{json.dumps(plan)}'\n\n{step}")


def difference(plan, folder):
    """Return how the program with a session differs from its plain loop; None: in nothing."""
    folder.mkdir(parents=True)
    try:
        _module(plan["engine"]).Both(plan, folder).compare()
    except Exception:  # noqa: BLE001 - whatever it is, the plain loop has not raised it
        return traceback.format_exc()
    return None


def _module(engine):
    name = ".tensorflow_loops" if engine == "tensorflow" else ".loops"
    return importlib.import_module(name, __package__)


# The user's own program


def source_of(plan):
    """Return the step, as its user would write it."""
    torch, states = plan["engine"] == "torch", plan["states"]
    own = ["rng"] if plan["noise"] == "own" else []
    data = ["batch"] if plan["batch"] else plan["parameters"]
    lines = [f"def train_step({', '.join([*([] if torch else states), *own, *data])}):"]
    if plan["batch"]:
        by_name = {"tuple": None, "dict": "x, y = batch['x'], batch['y']"}
        unpack = by_name.get(plan["element"], "x, y = batch.x, batch.y")
        lines.append(f"    {unpack or ', '.join(plan['parameters']) + ' = batch'}")
    noise = {
        "none": "0",
        "own": "int(rng.integers(50))",
        "global": "int(np.random.randint(50))",
    }[plan["noise"]]
    if torch:
        noise = "torch.randint(50, (2,)) if models[0].training else 0"
    lines.append(f"    noise = {noise}")
    last = "noise"
    for at, name in enumerate(states):
        old = f"models[{at}].w" if torch else f"{name}.w[...]" if plan["objects"] else name
        lines.append(f"    new_{name} = ({old} * {at + 2} + x * {at + 1} + y + {last}) % {M}")
        last = f"new_{name}"
    old = "models[0].w" if torch else f"{states[0]}.w[...]" if plan["objects"] else states[0]
    lines.append(f"    loss = ({' + '.join(f'new_{name}.sum()' for name in states)}) % {M}")
    lines.append(f"    grads = ({old} * 5 + x) % {M}")
    if torch:
        lines += [f"    models[{at}].w.copy_(new_{name})" for at, name in enumerate(states)]
        return "\n".join([*lines, "    return {'loss': loss, 'grads': grads}\n"])
    if plan["objects"]:
        lines += [f"    {name}.w[...] = new_{name}" for name in states]
    value = {name: name if plan["objects"] else f"new_{name}" for name in states}
    value |= {"loss": "loss", "grads": "grads"}
    named = ", ".join(f"{name}={value[name]}" for name in plan["order"])
    news = ", ".join(value[name] for name in states)
    returned = {
        "states, dict": news + ", {'loss': loss, 'grads': grads}",
        "outputs": ", ".join(value[name] for name in plan["order"]),
        "dict": f"dict({named})",
        "named tuple": f"Result({named})",
        "dataclass": f"Result({named})",
    }
    return "\n".join([*lines, f"    return {returned[plan['returns']]}\n"])


class Own:
    """What a program of the user's has before it trains: its states, its data and its step."""

    def __init__(self, plan):
        self.plan, self.torch = plan, plan["engine"] == "torch"
        if plan["engine"] == "jax":
            import jax
            from flax import nnx  # noqa: F401  importing it draws random numbers

            jax.devices()  # the first use of a device does, too: k8s_cluster.py, line 36
        np.random.seed(plan["seed"] % 2**32)
        random.seed(plan["seed"])
        initial = [np.array([3 + at, 40 - at], np.int32) for at in range(len(plan["states"]))]
        self.states = dict(zip(plan["states"], initial, strict=True))
        self.rng = {"rng": np.random.default_rng(7)} if plan["noise"] == "own" else {}
        if plan["objects"]:
            self.states = {name: _module_of(value) for name, value in self.states.items()}
        names = {"np": np}
        if self.torch:
            import torch

            torch.manual_seed(plan["seed"])
            names |= {"torch": torch, "models": self._models(torch)}
            self.models = names["models"]
        if plan["returns"] == "named tuple":
            names["Result"] = namedtuple("Result", plan["order"])
        if plan["returns"] == "dataclass":
            names["Result"] = dataclasses.make_dataclass("Result", plan["order"])
            if plan["engine"] == "jax":
                import jax

                jax.tree_util.register_dataclass(names["Result"], plan["order"], [])
        exec(source_of(plan), names)
        self.step = names["train_step"]
        if self.torch:
            self.step = torch.no_grad()(self.step)
        self.data = None if plan["source"] == "feed" else self._data()

    def _models(self, torch):
        models = []
        for value in self.states.values():
            model = torch.nn.Module()
            model.w = torch.nn.Parameter(torch.tensor(value, dtype=torch.float32))
            model.drop = torch.nn.Dropout()
            models.append(model)
        return models

    def element(self, number):
        """The batch of this number, as it lies in the data."""
        kind = np.float32 if self.torch else np.int32
        x, y = np.full(2, 11 * number % 97, kind), np.full(2, 5 * number % 89, kind)
        values = {"x": x, "y": y}
        if self.torch:
            import torch

            values = {name: torch.from_numpy(value) for name, value in values.items()}
        if self.plan["source"] == "feed":
            return values
        fields = {name: values[name] for name in self.plan["fields"]}
        if self.plan["element"] == "dict":
            return fields
        if self.plan["element"] == "named tuple":
            return Element[tuple(fields)](**fields)
        return tuple(values[name] for name in self.plan["parameters"])

    def _data(self):
        elements, source = (
            [self.element(n) for n in range(self.plan["elements"])],
            self.plan["source"],
        )
        if source == "list":
            return elements
        if source == "generator":
            return iter([*elements])
        if source == "of the step":
            return lambda step: map(self.element, range(step, self.plan["elements"]))
        if source == "loader":
            import torch

            return torch.utils.data.DataLoader(
                elements, batch_size=None, shuffle=True, num_workers=self.plan["workers"]
            )
        return Shuffled(elements, source)

    @property
    def epochs(self):
        return self.plan["epochs"] if self.plan["source"] not in ("generator", "of the step") else 1

    def arguments(self, element):
        """The arguments that a loop gives to the step for an element."""
        if self.plan["batch"]:
            return {"batch": element}
        if isinstance(element, tuple) and not hasattr(element, "_fields"):
            return dict(zip(self.plan["parameters"], element, strict=True))
        if isinstance(element, list):  # of a loader that makes lists of tuples
            return dict(zip(self.plan["parameters"], element, strict=True))
        return element if isinstance(element, dict) else element._asdict()

    def own_elements(self):
        """The elements of its own ``for`` loops."""
        if self.data is None:
            for number in range(self.plan["elements"]):
                yield self.element(number)
            return
        for _ in range(self.epochs):
            yield from self.data(0) if callable(self.data) else self.data

    def current(self):
        if self.torch:
            pairs = zip(self.states, self.models, strict=True)
            return {f"{name}/w": model.w.detach().numpy().copy() for name, model in pairs}
        if self.plan["objects"]:
            return {f"{name}/w": np.array(model.w[...]) for name, model in self.states.items()}
        return {name: np.array(value) for name, value in self.states.items()}

    def train(self):
        """Train in a plain loop; return what every step had and made, and the end."""
        step = self.step
        if self.plan["engine"] == "jax" and not self.plan["objects"]:
            import jax

            step = jax.jit(step)
        trace = []
        for element in self.own_elements():
            for turn in range(self.plan["inner"] or 1):
                if self.plan["inner"]:
                    if turn == 0:
                        base = sum(int(value.sum()) for value in self.current().values()) % M
                    element = element | {"x": element["x"] * 0 + (base + turn) % M}
                given = self.arguments(element)
                before = self.current()
                made = self._made(step(**({} if self.torch else self.states), **self.rng, **given))
                before["evaluation"] = next(iter(before.values())).sum() * 7 % M
                seen = {} if self.plan["batch"] else given
                trace.append(
                    before
                    | {name: np.asarray(value).copy() for name, value in (made | seen).items()}
                )
        return [*trace, self.current()]

    def _made(self, result):
        """Take over the new states; return the outputs."""
        if self.torch:
            return result
        count = len(self.states)
        if self.plan["returns"] == "states, dict":
            made = dict(zip(self.states, result[:count], strict=True)) | result[count]
        elif self.plan["returns"] == "outputs":
            made = dict(zip(self.plan["order"], result, strict=True))
        else:
            made = result if isinstance(result, dict) else None
            made = made or {name: getattr(result, name) for name in self.plan["order"]}
        self.states = {name: made.pop(name) for name in self.states}
        return made

    def graph(self):
        """The one line that makes it a graph."""
        options = {"data": self.data}
        if self.data is not None and not callable(self.data):
            options["epochs"] = self.epochs if self.plan["source"] != "generator" else 1
        if self.torch:
            objects = dict(zip(self.states, self.models, strict=True))
            return rh.torch.graph(self.step, ["loss", "grads"], **options, **objects)
        door = rh.jax.graph if self.plan["engine"] == "jax" else rh.graph
        outputs = self.plan["order"] if self.plan["returns"] == "outputs" else []
        return door(self.step, outputs, **options, **self.states, **self.rng)


def _module_of(value):
    from flax import nnx

    module = nnx.Module()
    module.w = nnx.Param(value)
    return module


Element = {order: namedtuple("Element", order) for order in (("x", "y"), ("y", "x"))}


class Shuffled:
    """Elements in an order that is drawn anew in each epoch."""

    def __init__(self, elements, source):
        self.elements, self.source = elements, source
        self.random = np.random.default_rng(5)

    def __iter__(self):
        count = len(self.elements)
        if self.source == "own random":
            order = self.random.permutation(count)
        elif self.source == "numpy random":
            order = np.random.permutation(count)
        else:
            order = random.sample(range(count), count)
        for at in order:
            yield self.elements[at]


# The same program with a session


class Recorder(rh.SessionRunHook):
    """Base of the hooks: notes what each was given, and at which step the run began."""

    def __init__(self, spec, seen, names):
        self.spec, self.seen, self.names = spec, seen, names
        self.timer = rh.Timer(rh.Trigger(every_steps=spec["every"]))

    def note(self, step, values):
        self.seen += [(self.spec["kind"], step, name, value) for name, value in values.items()]


class Asks(Recorder):
    def before_run(self, run_context):
        self.step = run_context.session.global_step
        named = isinstance(self.names, dict)
        return rh.SessionRunArgs(self.names if named else {name: name for name in self.names})

    def after_run(self, run_context, run_values):
        self.note(self.step, run_values.results)


class Sleeps(Asks):
    def after_create_session(self, session, coord):
        self.timer.start(session.global_step)

    def next_due(self):
        return self.timer.due()

    def after_run(self, run_context, run_values):
        super().after_run(run_context, run_values)
        self.timer.update_last_triggered_step(run_context.session.global_step)


class Watches(Recorder):
    def begin(self):
        self.tensor = rh.get_default_graph().as_graph_element(self.names[0])

    def watched(self):
        return self.tensor

    def watch(self, step, value):
        self.note(step - 1, {self.names[0]: value})

    def before_run(self, run_context):
        self.step = run_context.session.global_step
        return rh.SessionRunArgs(self.tensor)

    def after_run(self, run_context, run_values):
        self.note(self.step, {self.names[0]: run_values.results})


class Reads(Recorder):
    """Makes runs of its own, of states, after each run."""

    def after_run(self, run_context, run_values):
        session = run_context.session
        self.note(session.global_step, {name: session.run(name) for name in self.names})


class Feeds(Recorder):
    """Feeds a placeholder, which nothing of the program needs, and asks for what is made of it."""

    def begin(self):
        if not hasattr(self, "fed"):
            self.fed = rh.placeholder(f"fed_{id(self)}")
            self.made = rh.call(lambda value: value * 3 + 1, self.fed)

    def before_run(self, run_context):
        self.value = run_context.session.global_step
        return rh.SessionRunArgs(self.made, {self.fed: np.int32(self.value)})

    def after_run(self, run_context, run_values):
        assert int(run_values.results) == self.value * 3 + 1, "what was fed is another's"


KINDS = {"asks": Asks, "sleeps": Sleeps, "watches": Watches, "reads": Reads, "feeds": Feeds}


class Beside(rh.SessionRunHook):
    """Threads that make runs of their own on the session, as queue runners do."""

    def __init__(self, count, states):
        self.count, self.states, self.seen, self.wrong = count, states, [], []
        self.runs, self.lock, self.threads = 0, threading.Lock(), []

    def begin(self):
        if not hasattr(self, "fed"):
            self.fed = rh.placeholder("beside")
            self.made = rh.call(lambda value: value * 7 + 2, self.fed)
            self.counter = rh.Variable(np.int32(0), name="runs_beside")
            self.add = self.counter.assign_add(np.int32(1))

    def after_create_session(self, session, coord):
        self.before = int(session.run(self.counter))
        for number in range(self.count):
            thread = threading.Thread(target=self.work, args=[session, coord, number])
            coord.register_thread(thread)
            self.threads.append(thread)
            thread.start()

    def work(self, session, coord, number):
        with coord.stop_on_exception():
            for turn in range(20):
                if coord.should_stop():
                    return
                value = 100 * number + turn
                made = session.run(self.made, {self.fed: np.int32(value)})
                if int(made) != value * 7 + 2:
                    self.wrong.append((value, made))
                session.run(self.add.op if hasattr(self.add, "op") else self.add)
                with self.lock:
                    self.runs += 1
                self.seen += [(name, session.run(name)) for name in self.states]


class Both:
    """A program, made both ways."""

    def __init__(self, plan, folder):
        self.plan, self.folder = plan, folder
        self.seen = []
        self.torch = plan["engine"] == "torch"
        # On PyTorch an evaluation has no inputs: whether it sees the step is not promised.
        self.asked = [] if self.torch else self.seen
        self.has_objects = self.torch or plan["objects"]
        self.states = [self.name(name) for name in plan["states"]]

    def compare(self):
        trace = Own(self.plan).train()
        steps = len(trace) - 1
        end = None
        for last_step in [min(self.plan["stop"], steps), None] if self.plan["stop"] else [None]:
            end = self.train(last_step)
        step, values = end
        assert step == steps, f"{step} steps ({self.reason}), and {steps} in the plain loop"
        self.assert_same("the end", values, trace[-1])
        for kind, at, name, value in self.seen:
            assert at < len(trace), f"{kind}: {name} of step {at}"
            self.assert_same(f"{kind} at step {at}", {name: value}, trace[at])
        self.check_events(trace)

    def assert_same(self, where, values, expected):
        for name, value in values.items():
            got, want = np.asarray(value), expected[name]
            assert np.array_equal(got, want), (
                f"{where}: {name} is {got}, and {want} in the plain loop"
            )

    def name(self, name):
        return f"{name}/w" if self.has_objects and name in self.plan["states"] else name

    def hooks(self):
        hooks = [self.hook(spec) for spec in self.plan["hooks"]]
        return [hook for hook in hooks if hook is not None]

    def hook(self, spec):
        kind, names = spec["kind"], [self.name(name) for name in spec["names"]]
        if self.plan["batch"] or (self.torch and self.plan["source"] == "feed"):
            names = [name for name in names if name not in ("x", "y")] or ["loss"]
        if kind in KINDS:
            return KINDS[kind](spec, self.seen, self.states if kind == "reads" else names)
        if kind == "logs":
            return self.logs(spec, names, self.seen)
        if kind == "nan":
            return rh.NanTensorHook("loss", late=spec["every"] % 2 == 0)
        if kind == "writes":
            rh.summary.scalar("loss")
            return None
        evaluated = {"evaluation": self.evaluation()}
        if kind == "evaluation asked":
            return Asks(spec, self.asked, evaluated)
        if kind == "evaluation logged":
            return self.logs(spec, evaluated, self.asked)
        if kind == "evaluates":
            return rh.EvaluationHook(evaluated, every_n_steps=spec["every"])
        rh.summary.scalar("evaluation", evaluated["evaluation"])
        return None

    def logs(self, spec, names, seen):
        def note(values):
            seen.extend(("logs", hook.logged_step, *named) for named in values.items())
            return ""

        class Logs(rh.LoggingTensorHook):
            def before_run(self, run_context):
                self.logged_step = run_context.session.global_step
                return super().before_run(run_context)

        hook = Logs(names, every_n_iter=spec["every"], formatter=note)
        return hook

    def evaluation(self):
        """An evaluation that leaves nothing as it was, unless it is restored."""
        if not self.torch:
            state = rh.get_default_graph()[self.states[0]]
            return rh.call(lambda value: (value.sum() * 7) % M, state)
        import torch

        @torch.no_grad()
        def evaluate():
            for model in self.own.models:
                model.eval()
            return (self.own.models[0].w.sum() * 7 + 0 * torch.rand(1).sum()) % M

        return rh.call(evaluate)

    def train(self, last_step):
        plan = self.plan
        self.own = own = Own(plan)
        with own.graph().as_default():
            hooks = self.hooks()
            beside = Beside(plan["beside"], self.states) if plan["beside"] else None
            hooks += [beside] if beside else []
            hooks += [rh.StopAtStepHook(last_step=last_step)] if last_step else []
            ended = Ended(self.states, beside)
            with rh.MonitoredTrainingSession(
                checkpoint_dir=self.folder / "run",
                hooks=[*hooks, ended],
                save_summaries_steps=2,
                log_step_count_steps=None,
            ) as session:
                self.loop(session, own)
        self.reason = session.stop_reason
        if beside:
            assert not beside.wrong, f"runs beside had others' results: {beside.wrong}"
            self.seen_beside(beside)
        return ended.step, ended.values

    def loop(self, session, own):
        plan = self.plan
        fetches = [self.name(name) for name in plan["fetches"]]
        while not session.should_stop():
            feeds = [{}]
            if own.data is None:
                number = session.global_step // (plan["inner"] or 1)
                if number == plan["elements"]:
                    break
                feeds = [own.element(number)]
                if plan["inner"]:
                    now = session.run(self.states, hooks=False)
                    base = int(sum(value.sum() for value in now)) % M
                    x = feeds[0]["x"]
                    feeds = [
                        feeds[0] | {"x": x * 0 + (base + turn) % M} for turn in range(plan["inner"])
                    ]
            for feed in feeds:
                if session.should_stop():
                    break
                step = session.global_step
                _, got = session.run(["train_op", {name: name for name in fetches}], feed)
                self.seen += [("the loop", step, name, value) for name, value in got.items()]
            for _ in range(plan["looks"]):
                got = session.run({name: name for name in self.states}, hooks=False)
                step = session.global_step
                self.seen += [("a look", step, name, value) for name, value in got.items()]

    def seen_beside(self, beside):
        self.beside = getattr(self, "beside", []) + beside.seen

    def check_events(self, trace):
        for name, value in getattr(self, "beside", []):
            known = any(np.array_equal(np.asarray(value), step[name]) for step in trace)
            assert known, f"a thread beside has seen {name} as {value}, which it never was"
        with contextlib.suppress(FileNotFoundError):
            for event in read_events(self.folder / "run"):
                if event.tag == "loss":
                    expected = trace[event.step - 1]["loss"]
                elif event.tag == "evaluation" and not self.torch:
                    expected = trace[event.step - 1][self.states[0]].sum() * 7 % M
                else:
                    continue
                assert float(np.asarray(event.value)) == float(expected), (
                    f"the summary {event.tag} of step {event.step} is {event.value}, not {expected}"
                )


class Ended(rh.SessionRunHook):
    """Notes the states where a training ends."""

    def __init__(self, states, beside):
        self.states, self.beside = states, beside

    def end(self, session):
        self.step = session.global_step
        self.values = session.run({name: name for name in self.states})
        if self.beside:
            for thread in self.beside.threads:
                thread.join()
            counted = int(session.run(self.beside.counter)) - self.beside.before
            assert counted == self.beside.runs, f"{counted} runs beside, of {self.beside.runs}"
