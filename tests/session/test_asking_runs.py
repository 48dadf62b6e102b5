"""A run with hooks that ask in every run, made again as before, is the run of the layers."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runhooks as rh
from tests.session.small_program import ENGINES, ONE, plain, program


class Asks(rh.SessionRunHook):
    """Asks in every run for what ``request(p, number of the run)`` returns, and keeps it all."""

    def __init__(self, p, request, before=None, after=None):
        self.p, self.request, self.calls, self.runs = p, request, [], 0
        self.before, self.after = before, after

    def before_run(self, run_context):
        self.runs += 1
        args = run_context.original_args
        self.calls.append(("before", run_context.next_step, plain(args.feed_dict["x:0"])))
        if self.before is not None:
            self.before(self, run_context)
        return self.request(self.p, self.runs)

    def after_run(self, run_context, run_values):
        self.calls.append(("after", run_context.session.global_step, plain(run_values.results)))
        if self.after is not None:
            self.after(self, run_context)


class Listens(rh.SessionRunHook):
    """Asks for nothing."""

    def __init__(self):
        self.calls = []

    def after_run(self, run_context, run_values):
        self.calls.append((run_context.session.global_step, run_values.results))


class Sleeps(rh.SessionRunHook):
    """Is called in the first ``n`` runs, at each tenth step, and in every run from step 40 on."""

    def __init__(self, p, n):
        self.p, self.n, self.calls, self.step = p, n, [], 0

    def next_due(self):
        if len(self.calls) < self.n or self.step >= 40:
            return None
        return rh.Due(step=self.step // 10 * 10 + 10)

    def before_run(self, run_context):
        return rh.SessionRunArgs([self.p.rate, self.p.loss])

    def after_run(self, run_context, run_values):
        self.step = run_context.session.global_step
        self.calls.append((self.step, plain(run_values.results)))


class SleepsByRuns(rh.SessionRunHook):
    """Is called in each ``n``-th run, whatever the step."""

    def __init__(self, p, n):
        self.p, self.n, self.calls = p, n, []

    def next_due(self):
        return rh.Due(runs=self.n)

    def after_run(self, run_context, run_values):
        self.calls.append(run_context.session.global_step)


class Watches(rh.SessionRunHook):
    def __init__(self, p):
        self.p, self.calls = p, []

    def watched(self):
        return self.p.rate

    def watch(self, step, value):
        self.calls.append((step, plain(value)))

    def before_run(self, run_context):
        return rh.SessionRunArgs(self.p.rate)

    def after_run(self, run_context, run_values):
        self.watch(run_context.session.global_step, run_values.results)


def fails(hook, run_context):
    if hook.runs % 7 == 0:
        raise ValueError(f"in run {hook.runs}")


def stops(hook, run_context):
    if hook.runs == 11:
        run_context.request_stop("eleven")


def runs_inside(hook, run_context):
    if hook.runs % 4 == 0:
        run_context.session.run(hook.p.train, {hook.p.x: ONE})


def assigns(hook, run_context):
    if hook.runs % 5 == 0:
        run_context.session.assign({"rate": np.float32(hook.runs)})


def moves_step(hook, run_context):
    if hook.runs == 6:
        run_context.session.assign({"global_step": np.int64(27)})


def loads(hook, run_context):
    if hook.runs % 6 == 0:
        run_context.session.load(run_context.session.snapshot({}))


MUTABLE = {}


def changes_in_place(p, run):
    """Return the same request again, whose dict has changed."""
    args = MUTABLE.setdefault("dict", rh.SessionRunArgs({}))
    args.fetches.clear()
    args.fetches.update({"loss": p.loss} if run % 5 else {"loss": p.rate, "more": p.new})
    return args


def feeds_later_in_the_same_dict(p, run):
    """Return the same request again, whose feed_dict has changed."""
    args = MUTABLE.setdefault("feeds", rh.SessionRunArgs(p.new, {}))
    args.feed_dict.clear()
    args.feed_dict.update({p.rate: np.float32(run)} if run % 5 == 0 else {})
    return args


def another_tensor_in_the_same_object(p, run):
    """Return the same object again, which is no tuple, with other fetches."""
    args = MUTABLE.setdefault("object", SimpleNamespace(feed_dict=None, options=None))
    args.fetches = p.loss if run % 5 else p.rate
    return args


REQUESTS = {
    "a tensor": lambda p, run: rh.SessionRunArgs(p.loss),
    "by name": lambda p, run: rh.SessionRunArgs("w:0"),
    "a dict": lambda p, run: rh.SessionRunArgs({"loss": p.loss, "x": [p.x]}),
    "a list": lambda p, run: rh.SessionRunArgs([p.loss, p.rate]),
    "nothing": lambda p, run: None,
    "no fetches": lambda p, run: rh.SessionRunArgs(None),
    "an empty list": lambda p, run: rh.SessionRunArgs([]),
    "every other run": lambda p, run: rh.SessionRunArgs(p.loss) if run % 2 else None,
    "another tensor later": lambda p, run: rh.SessionRunArgs(p.loss if run < 6 else p.rate),
    "another dict later": lambda p, run: rh.SessionRunArgs({"a" if run % 9 else "b": p.loss}),
    "no more": lambda p, run: rh.SessionRunArgs(p.loss) if run < 8 else None,
    "changes in place": changes_in_place,
    "another tensor in place": another_tensor_in_the_same_object,
    "feeds in place": feeds_later_in_the_same_dict,
    "feeds": lambda p, run: rh.SessionRunArgs(p.loss, {p.rate: np.float32(run)}),
    "feeds later": lambda p, run: rh.SessionRunArgs(
        p.loss, {p.rate: np.float32(run)} if run % 5 == 0 else None
    ),
    "feeds what is fed": lambda p, run: rh.SessionRunArgs(None, {p.x: ONE} if run == 9 else None),
    "unknown": lambda p, run: rh.SessionRunArgs(p.loss if run % 6 else "unknown:0"),
    "no request": lambda p, run: rh.SessionRunArgs(p.loss) if run % 6 else p.loss,
}
EVENTS = [None, None, fails, stops, runs_inside, assigns, moves_step, loads]


def substituted(p, raw):
    with raw.substituted({"w": "w"}):
        return raw.run(p.w)


#: What a program may do, given a number, what makes runs with hooks, and a raw session.
ACTIONS = {
    "train": lambda p, n, run, raw: [run(p.train, {"x:0": ONE * i}) for i in range(n)],
    "by name": lambda p, n, run, raw: [run("train", {"x:0": ONE * n}) for _ in range(3)],
    "tuple": lambda p, n, run, raw: [run((p.train, p.loss), {"x:0": ONE * n}) for _ in range(n)],
    "list": lambda p, n, run, raw: [run([p.train, p.new], {"x:0": ONE * n}) for _ in range(n)],
    "dict": lambda p, n, run, raw: run((p.train, {"w": p.new}), {"x:0": ONE * n}),
    "two steps": lambda p, n, run, raw: [run(p.twice, {"x:0": ONE}) for _ in range(n)],
    "no step": lambda p, n, run, raw: run([p.count, p.other], {"x:0": ONE}),
    "bad feed": lambda p, n, run, raw: run(p.train, {"x:0": np.zeros((3, 5), np.float32)}),
    "other feeds": lambda p, n, run, raw: [run(p.train, {"x:0": n, p.rate: ONE}) for _ in range(n)],
    "raw": lambda p, n, run, raw: raw.run(p.train, {p.x: ONE}),
    "assign": lambda p, n, run, raw: raw.assign({"w": np.float32([n, 0]), "global_step": n}),
    "load": lambda p, n, run, raw: raw.load(raw.snapshot({})),
    "substitute": lambda p, n, run, raw: substituted(p, raw),
    "read": lambda p, n, run, raw: raw.read("w"),
}

DRAWN = st.tuples(st.sampled_from(["train", "train", *ACTIONS]), st.integers(3, 12))


class Calls(list):
    """The calls of one hook; ``order`` has the numbers of all hooks in the order of their calls."""

    def __init__(self, order, number):
        self.order, self.number = order, number

    def append(self, call):
        super().append(call)
        self.order.append(self.number)


def observed(p, hooks, actions, through_layers):
    seen, order = [], []
    for number, hook in enumerate(hooks):
        hook.calls = Calls(order, number)
    with p.graph.as_default(), rh.MonitoredSession(hooks=hooks) as sess:
        raw = sess.run_step_fn(lambda step_context: step_context.session)

        def run(fetches, feed_dict):
            if not through_layers:
                value = sess.run(fetches, feed_dict)
            else:
                value = sess.run_step_fn(
                    lambda step_context: step_context.run_with_hooks(fetches, feed_dict)
                )
            return value

        for kind, number in actions:
            try:
                seen.append(plain(ACTIONS[kind](p, number, run, raw)))
            except (RuntimeError, TypeError, ValueError) as error:
                # These depend on what was run before, in this graph and in the process.
                left_out = "'x:0' is given", "JAX_TRACEBACK"
                notes = getattr(error, "__notes__", [])
                notes = [it for it in notes if not any(text in it for text in left_out)]
                seen.append((type(error), str(error), notes))
            counts = raw.runs, raw.changes, raw.global_step
            seen.append((sess.global_step, sess.should_stop(), sess.stop_reason, counts))
        seen.append(plain(raw.run([p.w, p.rate, p.other])))
    return seen, order, [hook.calls for hook in hooks]


@pytest.mark.parametrize("engine", ENGINES)
def test_any_runs_with_hooks_that_ask_are_those_of_the_layers(engine):
    p = program(engine)
    asking = st.tuples(
        st.sampled_from(sorted(REQUESTS)), st.sampled_from(EVENTS), st.sampled_from(EVENTS)
    )

    @settings(max_examples=80 if engine == "python" else 35, deadline=None, derandomize=True)
    @given(
        st.lists(DRAWN, min_size=1, max_size=6),
        st.lists(asking, max_size=3),
        st.lists(st.integers(0, 12), max_size=2),
        st.sampled_from([0, 4, 9]),
        st.booleans(),
        st.booleans(),
    )
    def check(actions, asks, sleepers, every_runs, listens, watches):
        def hooks():
            MUTABLE.clear()
            return [
                *[Sleeps(p, n) for n in sleepers[:1]],
                *[Asks(p, REQUESTS[request], *events) for request, *events in asks],
                *[Listens()] * listens,
                *[Watches(p)] * watches,
                *[SleepsByRuns(p, every_runs)] * bool(every_runs),
                *[Sleeps(p, n) for n in sleepers[1:]],
            ]

        assert observed(p, hooks(), actions, False) == observed(p, hooks(), actions, True)

    check()


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_each_run_delivers_what_was_asked_for_in_it(request_of):
    p = program("python")
    MUTABLE.clear()
    values = {"w": [1.0, 2.0], "rate": 0.5}

    class Checks(Asks):
        def before_run(self, run_context):
            self.asked = super().before_run(run_context)
            return self.asked

    hook, failed = Checks(p, request_of), 0
    with p.graph.as_default(), rh.MonitoredSession(hooks=[hook]) as sess:
        for number in range(1, 15):
            try:
                loss = plain(sess.run((p.train, p.loss), {"x:0": ONE}))[1]
            except (RuntimeError, TypeError, ValueError):
                failed += 1
                continue
            fetches = None if hook.asked is None else hook.asked.fetches
            fed = {} if hook.asked is None else hook.asked.feed_dict or {}
            rate = float(fed.get(p.rate, values["rate"]))
            now = {p.loss: loss, p.rate: rate, p.x: [1.0, 1.0], "w:0": values["w"]}
            values["w"] = [it + rate for it in values["w"]]
            now[p.new] = values["w"]
            assert hook.calls[-1] == ("after", number - failed, filled(fetches, now))
    assert failed == {"unknown": 2, "no request": 2, "feeds what is fed": 1}.get(
        next(name for name, it in REQUESTS.items() if it is request_of), 0
    )


def filled(structure, values):
    if isinstance(structure, list):
        return [filled(it, values) for it in structure]
    if isinstance(structure, dict):
        return {key: filled(it, values) for key, it in structure.items()}
    return None if structure is None else values[structure]


@pytest.mark.parametrize("engine", ENGINES)
def test_hook_gets_one_context_a_run_and_the_very_arguments_of_the_caller(engine):
    p, seen = program(engine), []

    class Keeps(rh.SessionRunHook):
        def before_run(self, run_context):
            seen.append([run_context, run_context.original_args])
            return rh.SessionRunArgs(p.loss)

        def after_run(self, run_context, run_values):
            seen[-1] += [run_context, run_values]

    with p.graph.as_default(), rh.MonitoredSession(hooks=[Keeps()]) as sess:
        for number in range(6):
            fetches, feed_dict = [p.train, p.loss], {"x:0": ONE * number}
            result = sess.run(fetches, feed_dict)
            before, args, after, values = seen[-1]
            assert before is after
            assert args.fetches is fetches
            assert args.feed_dict is feed_dict
            assert args == rh.SessionRunArgs(fetches, feed_dict)
            assert values == rh.SessionRunValues(result[1], None, None)
    contexts = [it[0] for it in seen]
    assert len({id(it) for it in contexts}) == 6  # a hook may keep them
    assert [plain(it[3].results) for it in seen] == [
        sum(it * number for it in np.float32([1, 2]) + 0.5 * sum(range(number)))
        for number in range(6)
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_step_that_a_hook_moves_in_before_run_wakes_those_that_sleep(engine):
    p = program(engine)
    asks, sleeps = Asks(p, REQUESTS["a tensor"], before=moves_step), Sleeps(p, 0)
    with p.graph.as_default(), rh.MonitoredSession(hooks=[sleeps, asks]) as sess:
        for _ in range(8):
            sess.run(p.train, {"x:0": ONE})
    steps = [call[1] for call in asks.calls if call[0] == "after"]
    assert steps == [1, 2, 3, 4, 5, 28, 29, 30]
    assert sleeps.calls[0] == (28, None)  # in the run that has gone further than expected


def test_input_that_a_hook_rewinds_in_before_run_begins_anew_in_that_run():
    class Rewinds(rh.SessionRunHook):
        def before_run(self, run_context):
            if run_context.next_step % 5 == 0:
                run_context.session.rewind(number)
            return rh.SessionRunArgs({"number": number})

        def after_run(self, run_context, run_values):
            seen.append(run_values.results["number"])

    seen = []
    with rh.Graph().as_default():
        number = rh.inputs(lambda step: range(100), name="numbers")
        train = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredSession(hooks=[Rewinds()]) as sess:
            for _ in range(12):
                sess.run(train)
    assert seen == [0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2]


def test_snapshot_taken_in_before_run_is_of_the_state_before_that_run():
    p, saved = program("jax"), {}

    class Saves(rh.SessionRunHook):
        def before_run(self, run_context):
            session = run_context.session
            if session.global_step % 3 == 0:
                snapshot = session.snapshot({})
                saved[session.global_step] = snapshot, plain(session.read("w")["w"])
            return rh.SessionRunArgs(p.loss)

    with p.graph.as_default(), rh.MonitoredSession(hooks=[Saves()]) as sess:
        for _ in range(12):
            sess.run(p.train, {"x:0": ONE})
        for step, (snapshot, w) in saved.items():
            assert plain(snapshot.arrays["w"]) == w == [1 + 0.5 * step, 2 + 0.5 * step]
    assert [*saved] == [0, 3, 6, 9]


@pytest.mark.parametrize("nested", [False, True])
def test_a_list_that_its_caller_changes_in_place_is_read_anew(nested):
    p, one, two = program("python"), [0.0], [0.0, 0.5]
    inner = [p.other]
    fetches = (inner, p.rate) if nested else inner
    hook = Asks(p, lambda p, run: rh.SessionRunArgs((p.rate, p.rate)))
    with p.graph.as_default(), rh.MonitoredSession(hooks=[hook]) as sess:
        results = [sess.run(fetches, {"x:0": ONE})]
        inner.append(p.rate)
        results += [sess.run(fetches, {"x:0": ONE}) for _ in range(2)]
    assert [plain(it[0] if nested else it) for it in results] == [one, two, two]
    assert [call[2] for call in hook.calls if call[0] == "after"] == [[0.5, 0.5]] * 3
