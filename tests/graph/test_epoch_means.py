"""``epoch_mean``, ``epoch_metrics``, ``reset_each_epoch``: what the steps of an epoch add up to."""

import logging
import math
import sys
from fractions import Fraction

import numpy as np
import pytest

import runhooks as rh

#: Batches of several sizes, of numbers that no float has exactly.
BATCHES = [np.float32([0.1, 0.2, 0.7]), np.float32([0.3]), np.float32([0.9, 1.1])]


def train_step(total, batch):
    return total + batch.sum(), {"loss": batch.mean(), "count": batch[:1] * 0 + batch.shape[0]}


class Seen:
    """Asks for ``tensors`` at a cadence, and keeps what it gets."""

    def __init__(self, tensors, **cadence):
        self.kept = []
        self.hook = rh.CallHook(self.keep, tensors, trigger=rh.Trigger(**cadence))

    def keep(self, *values):
        self.kept.append([np.asarray(it).item() for it in values])


def train(make, engine="python", epochs=2, last=10**9, folder=None, scaffold=None, **cadence):
    """Train; return the values of the tensors that ``make()`` returns, at the cadence."""
    start = np.float32(0)
    graph = rh.graph(train_step, total=start, data=BATCHES, epochs=epochs, engine=engine)
    with graph.as_default():
        seen = Seen(make(), **(cadence or {"every_epochs": 1}))
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder,
            scaffold=scaffold,
            hooks=[seen.hook, rh.StopAtStepHook(last_step=last)],
            save_summaries_steps=None,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                session.run("train_op")
    return seen.kept


def mean(values, weights):
    """The weighted mean, rounded once."""
    total = sum(Fraction(v) * Fraction(w) for v, w in zip(values, weights, strict=True))
    return float(total / sum(Fraction(w) for w in weights))


def losses(engine):
    """The losses of the steps of an epoch, as the step computes them."""
    made = train(lambda: ["loss"], engine, epochs=1, every_steps=1)
    return [loss for (loss,) in made]


WEIGHTS = {
    "examples": (lambda: None, [3, 1, 2]),
    "one": (lambda: 1, [1, 1, 1]),
    "another number": (lambda: 2.5, [1, 1, 1]),
    "a name": (lambda: "count", [3, 1, 2]),
    "a tensor": (lambda: rh.get_default_graph()["count"], [3, 1, 2]),
}


@pytest.mark.every_engine
@pytest.mark.parametrize("weight", WEIGHTS)
def test_it_is_the_weighted_mean_of_the_epoch(weight, engine):
    make, weights = WEIGHTS[weight]
    (first,), (second,) = train(lambda: [rh.epoch_mean("loss", make())], engine)
    expected = mean(losses(engine), weights)
    assert first == second
    assert first == pytest.approx(expected, rel=1e-6 if engine == "jax" else 1e-15)


@pytest.mark.every_engine
def test_two_means_are_kept_apart(engine):
    def make():
        return [rh.epoch_mean("loss"), rh.epoch_mean("loss", weight=1, name="plain")]

    (one, other), _ = train(make, engine)
    assert one == pytest.approx(mean(losses(engine), [3, 1, 2]), rel=1e-6)
    assert other == pytest.approx(mean(losses(engine), [1, 1, 1]), rel=1e-6)


@pytest.mark.every_engine
def test_it_is_the_mean_so_far_with_the_step_of_the_run(engine):
    kept = train(lambda: [rh.epoch_mean("loss")], engine, every_steps=1)
    so_far = [mean(losses(engine)[:n], [3, 1, 2][:n]) for n in (1, 2, 3)]
    assert [it for (it,) in kept] == pytest.approx(so_far * 2, rel=1e-6)


@pytest.mark.every_engine
@pytest.mark.parametrize("stops", [[1, 2, 3, 4, 5, 6], [2, 4, 6]], ids=["at each step", "at some"])
def test_after_a_stop_in_mid_epoch_it_is_the_same_to_the_last_digit(stops, engine, tmp_path):
    def make():
        return [rh.epoch_mean("loss")]

    parts = [train(make, engine, last=last, folder=tmp_path) for last in stops]
    assert [mean for part in parts for mean in part] == train(make, engine)


@pytest.mark.every_engine
def test_weights_of_another_run_bring_no_sums_with_them(engine, tmp_path):
    def make():
        return [rh.epoch_mean("loss")]

    train(make, engine, last=2, folder=tmp_path)
    scaffold = rh.Scaffold(init_from=rh.InitFrom(tmp_path))
    assert train(make, engine, scaffold=scaffold) == train(make, engine)


def mean_of(values, engine, **arguments):
    """The mean of an epoch of these losses, each of a batch of its own."""
    start = np.float32(0)
    graph = rh.graph(
        lambda total, batch: (total, {"loss": batch[0], "size": batch[1]}),
        total=start,
        data=[np.array([value, size]) for value, size in values],
        engine=engine,
    )
    with graph.as_default():
        seen = Seen([rh.epoch_mean("loss", **arguments)], every_epochs=1)
        rh.train.train("train_op", hooks=[seen.hook])
    ((found,),) = seen.kept
    return found


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([1, math.inf, 2], math.inf),
        ([-math.inf, 1], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([1, math.nan, math.inf], math.nan),
    ],
    ids=str,
)
def test_what_is_not_finite_is_as_in_a_plain_mean(losses, expected, engine):
    found = mean_of([(loss, 1) for loss in losses], engine)
    assert str(found) == str(expected)


@pytest.mark.every_engine
def test_a_step_without_examples_does_not_count(engine):
    values = [(2.0, 1), (math.nan, 0), (5.0, 2)]
    assert mean_of(values, engine, weight="size") == 4.0


@pytest.mark.every_engine
@pytest.mark.parametrize(
    "kind", ["float16", "bfloat16", "float32", "int8", "int64", "uint8", "bool"]
)
def test_values_of_any_kind_are_added_up_in_a_wide_one(kind, engine):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    top = {"float16": 60_000, "bfloat16": 3e38 / 128, "int8": 127, "uint8": 255, "bool": 1}
    values = [np.array([it], dtype) for it in [top.get(kind, 2**20)] * 5]
    graph = rh.graph(
        lambda total, batch: (total, {"loss": batch[0]}),
        total=np.float32(0),
        data=values,
        engine=engine,
    )
    with graph.as_default():
        seen = Seen([rh.epoch_mean("loss")], every_epochs=1)
        rh.train.train("train_op", hooks=[seen.hook])
    assert seen.kept == [[float(values[0][0])]]


@pytest.mark.every_engine
def test_a_complex_value_is_refused(engine):
    graph = rh.graph(
        lambda total, batch: (total, {"loss": batch[0]}),
        total=np.float32(0),
        data=[np.array([1 + 2j], np.complex64)],
        engine=engine,
    )
    with graph.as_default():
        rh.epoch_mean("loss")
        with pytest.raises(TypeError, match="real number"):
            rh.train.train("train_op")


@pytest.mark.parametrize("engine", ["python", "jax", pytest.param("torch", marks=pytest.mark.slow)])
def test_a_million_values_add_up_without_drift(engine):
    engine = rh.Graph(engine).engine
    sums, value = engine.new_sums(), np.float32(0.1)
    if engine.name == "jax":
        import jax

        def add(sums, _):
            return engine.add_to_sums("loss", sums, value, 1), None

        sums, _ = jax.jit(lambda it: jax.lax.scan(add, it, length=10**6))(sums)
    else:
        for _ in range(10**5):
            sums = engine.add_to_sums("loss", sums, value, 1)
    found = float(engine.mean_of_sums(sums))
    assert math.isclose(found, float(value), rel_tol=1e-7)


def calls_of(run):
    calls = []

    def profile(frame, event, _):
        if event == "call":
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.every_engine
def test_an_off_step_fetches_nothing_for_it_and_calls_no_hook(engine):
    def calls(has_mean):
        graph = rh.graph(train_step, total=np.float32(0), steps_per_epoch=100, engine=engine)
        with graph.as_default():
            hooks = []
            if has_mean:
                hooks = [rh.CallHook(print, [rh.epoch_mean("loss")], every_n_epochs=1)]
            with rh.MonitoredSession(hooks=hooks) as session:
                for _ in range(5):
                    session.run("train_op", {"batch": BATCHES[0]})
                return calls_of(lambda: session.run("train_op", {"batch": BATCHES[0]}))

    without, with_mean = calls(has_mean=False), calls(has_mean=True)
    assert [it for it in with_mean if "hooks" in it[0].split("/")[-2:]] == []
    reads = ("jax/_src/array.py", "device_get", "block_until_ready")
    assert [it for it in with_mean if any(word in "/".join(it) for word in reads)] == []
    if engine == "jax":  # all is done in the compiled step, but for the number of the epoch
        assert len(with_mean) <= len(without) + 25


def test_the_values_of_pytorch_are_not_read():
    """Of a tensor on the device "meta" nothing can be read; a copy from it raises an error."""
    import torch

    def step():
        return {"loss": torch.ones((1,), device="meta")}

    graph = rh.torch.graph(step, ["loss"], model=torch.nn.Linear(1, 1), steps_per_epoch=2)
    with graph.as_default():
        rh.epoch_mean("loss")
        rh.epoch_mean("loss", "loss", name="weighted")
        with rh.MonitoredSession() as session:
            for _ in range(5):
                session.run("train_op")


@pytest.mark.parametrize("engine", ["jax"])
def test_the_step_is_compiled_once(engine, caplog):
    batches = [np.ones(2, np.float32)] * 6
    graph = rh.graph(train_step, total=np.float32(0), data=batches, epochs=3, engine=engine)
    with graph.as_default(), caplog.at_level(logging.INFO, "runhooks"):
        hooks = [rh.CallHook(lambda it: None, [rh.epoch_mean("loss")], every_n_epochs=1)]
        with rh.MonitoredSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run("train_op")
    assert sum("compiled the training step" in it for it in caplog.messages) <= 1
    assert sum("compiled" in it for it in caplog.messages) <= 3


def test_of_two_steps_each_mean_counts_the_runs_of_its_own():
    import torch

    model = torch.nn.Linear(1, 1)
    graph = rh.torch.Graph(model=model, steps_per_epoch=3)
    with graph.as_default():
        x = rh.placeholder("x")
        rh.torch.step(lambda x: {"d_loss": x + 0.0}, ["d_loss"], args=[x], name="judge")
        rh.torch.step(lambda x: {"g_loss": 10 * x}, ["g_loss"], args=[x], name="make")
        means = [rh.epoch_mean(it, weight=1) for it in ("d_loss", "g_loss")]
        seen = [Seen([it], every_steps=1) for it in means]
        with rh.MonitoredSession() as session:
            for name, mean_, value in (
                ("judge", 0, 1.0),
                ("judge", 0, 2.0),
                ("make", 1, 3.0),
                ("judge", 0, 5.0),
                ("make", 1, 7.0),
                ("make", 1, 8.0),
            ):
                _, found = session.run([name, means[mean_]], {x: torch.tensor(value)})
                seen[mean_].keep(found)
    assert [it for (it,) in seen[0].kept] == [1.0, 1.5, 5.0]
    assert [it for (it,) in seen[1].kept] == [30.0, 70.0, 75.0]


def nnx_graph():
    from flax import nnx

    def step(metrics, batch):
        metrics.update(loss=batch)
        return metrics

    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    return rh.jax.graph(step, data=BATCHES, epochs=3, metrics=metrics)


def torch_graph():
    import torch
    import torchmetrics

    metrics = torchmetrics.MeanMetric()

    def step(batch):
        metrics.update(torch.as_tensor(batch))
        return {"loss": torch.as_tensor(batch).mean()}

    return rh.torch.graph(step, ["loss"], data=BATCHES, epochs=3, metrics=metrics)


def mapped_graph():
    from dataclasses import dataclass, replace

    import jax

    @jax.tree_util.register_dataclass
    @dataclass
    class Average:
        """A metric after clu: it is never changed, and has an empty one."""

        total: object
        count: object

        @classmethod
        def empty(cls):
            return cls(np.float32(0), np.float32(0))

        def compute(self):
            return {"loss": self.total / self.count}

    def step(metrics, batch):
        total, count = metrics.total + batch.sum(), metrics.count + batch.shape[0]
        return replace(metrics, total=total, count=count)

    return rh.jax.graph(step, data=BATCHES, epochs=3, metrics=Average.empty())


GRAPHS = {"flax nnx": nnx_graph, "torchmetrics": torch_graph, "clu": mapped_graph}


def metrics_of(kind, last=10**9, folder=None, **cadence):
    kept = []

    def keep(value):
        value = value["loss"] if isinstance(value, dict) else value
        kept.append(np.asarray(value).item())

    with GRAPHS[kind]().as_default():
        trigger = rh.Trigger(**(cadence or {"every_epochs": 1}))
        hooks = [
            rh.CallHook(keep, [rh.epoch_metrics("metrics")], trigger=trigger),
            rh.StopAtStepHook(last_step=last),
        ]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, log_step_count_steps=None
        ) as session:
            while not session.should_stop():
                session.run("train_op")
    return kept


@pytest.mark.parametrize("kind", GRAPHS)
def test_metric_objects_are_computed_and_start_anew_in_each_epoch(kind):
    everything = np.concatenate(BATCHES).astype(float)
    kept = metrics_of(kind)
    assert len(set(kept)) == 1
    assert kept == pytest.approx([everything.mean()] * 3, rel=1e-6)
    first = float(BATCHES[0].mean())
    assert metrics_of(kind, every_steps=1)[0::3] == pytest.approx([first] * 3, rel=1e-6)


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("last", [1, 2, 3, 4, 8])
def test_metric_objects_go_on_in_mid_epoch(kind, last, tmp_path):
    parts = metrics_of(kind, last, tmp_path) + metrics_of(kind, folder=tmp_path)
    assert parts == metrics_of(kind)


# --- without a step


SOURCES = {"data": {"data": BATCHES, "epochs": 2}, "steps": {"steps_per_epoch": len(BATCHES)}}


@pytest.mark.every_engine
@pytest.mark.parametrize("source", SOURCES)
def test_to_read_it_between_steps_draws_and_changes_nothing(source, engine):
    def train(reads):
        found, read = [], []
        graph = rh.graph(train_step, total=np.float32(0), engine=engine, **SOURCES[source])
        with graph.as_default():
            tensors = ["epoch", rh.epoch_mean("loss"), "total"]
            with rh.MonitoredSession() as session:
                for batch in BATCHES * 2:
                    feeds = None if source == "data" else {"batch": batch}
                    values = session.run(["train_op", *tensors[:2]], feeds)[1:]
                    found.append([np.asarray(it).item() for it in values])
                    for _ in range(reads):
                        epoch, mean, _ = session.run(tensors, hooks=False)
                        read.append([epoch, np.asarray(mean).item()])
                assert float(session.run("total", hooks=False)) == pytest.approx(6.6)
        return found, read

    found, none = train(reads=0)
    assert (none, [epoch for epoch, _ in found]) == ([], [1, 1, 1, 2, 2, 2])
    assert train(reads=2) == (found, [it for it in found for _ in range(2)])


@pytest.mark.every_engine
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("last", [3, 5, 6])
def test_at_the_end_of_the_loop_it_is_the_mean_so_far(source, last, engine):
    def train(**cadence):
        graph = rh.graph(train_step, total=np.float32(0), engine=engine, **SOURCES[source])
        with graph.as_default():
            seen = Seen(["epoch", rh.epoch_mean("loss")], **cadence)
            hooks = [seen.hook, rh.StopAtStepHook(last_step=last)]
            with rh.MonitoredSession(hooks=hooks) as session:
                for batch in (BATCHES * 2)[:last]:
                    session.run("train_op", None if source == "data" else {"batch": batch})
        return seen.kept

    assert train(at_end=True) == train(every_steps=1)[-1:]


@pytest.mark.parametrize("kind", GRAPHS)
def test_metric_objects_are_computed_between_steps_and_at_the_end(kind):
    with GRAPHS[kind]().as_default():
        values = [rh.epoch_metrics("metrics"), rh.epoch_metrics("metrics", name="again")]
        at_end = rh.FinalOpsHook(values)
        with rh.MonitoredSession(hooks=[at_end]) as session:
            while not session.should_stop():
                step = session.run(["train_op", *values])[1:]
                assert str(session.run(values, hooks=False)) == str(step)
                assert str(step[0]) == str(step[1])
    assert str(at_end.final_ops_values) == str(step)


def test_of_two_steps_metric_objects_are_computed_after_either():
    import torch
    import torchmetrics

    metrics = torchmetrics.MeanMetric()
    graph = rh.torch.Graph(metrics=metrics, steps_per_epoch=4)
    with graph.as_default():
        for name in ("judge", "make"):
            rh.torch.step(lambda: {"loss": metrics(torch.ones(()))}, ["loss"], name=name)
        value, kept = rh.epoch_metrics("metrics"), []
        hook = rh.CallHook(lambda it: kept.append(float(it)), [value], every_n_steps=1)
        with rh.MonitoredSession(hooks=[hook]) as session:
            for name in ("judge", "make", "make", "judge"):
                session.run(name)
    assert kept == [1.0] * 4


@pytest.mark.every_engine
def test_it_is_fetched_by_its_name(engine):
    with rh.graph(train_step, total=np.float32(0), data=BATCHES, engine=engine).as_default():
        rh.epoch_mean("loss")
        with rh.MonitoredSession() as session:
            _, loss, mean = session.run(["train_op", "loss", "epoch_mean/loss"])
    assert float(mean) == pytest.approx(float(loss))


def test_before_the_first_step_it_is_not_a_number():
    with rh.graph(train_step, total=np.float32(0), data=BATCHES).as_default():
        mean = rh.epoch_mean("loss")
        with rh.MonitoredSession() as session:
            assert math.isnan(session.run(mean))


# --- a state that starts anew


def totals(engine, last=10**9, folder=None):
    """The totals after the steps of three epochs, each of which begins with the first total."""
    kept = []
    graph = rh.graph(train_step, total=np.float32(0.1), data=BATCHES, epochs=3, engine=engine)
    with graph.as_default():
        rh.reset_each_epoch("total")
        hooks = [rh.StopAtStepHook(last_step=last)]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, log_step_count_steps=None
        ) as session:
            while not session.should_stop():
                session.run("train_op")
                kept.append(np.asarray(session.run("total", hooks=False)).item())
    return kept


@pytest.mark.every_engine
@pytest.mark.parametrize("stops", [[1, 2, 3, 4, 8, 9], [2, 5, 9]], ids=["at many", "at some"])
def test_a_state_starts_anew_in_each_epoch(engine, stops, tmp_path):
    total, expected = np.float32(0.1), []
    for batch in BATCHES:
        total = total + batch.sum()
        expected.append(total.item())
    kept = []
    for last in stops:  # in mid-epoch, after one, and at the end
        kept += totals(engine, last, tmp_path)
        assert len(kept) == last
    assert kept == pytest.approx(expected * 3, rel=1e-6)


# --- other means than before


@pytest.mark.every_engine
def test_a_training_may_be_resumed_with_other_means(engine, caplog, tmp_path):
    def means(*names):
        return lambda: [rh.epoch_mean("loss", name=name) for name in names]

    whole = train(means("a"), engine)
    train(means("a", "b"), engine, last=1, folder=tmp_path)
    first, second = train(means("b", "c"), engine, folder=tmp_path)
    assert "saved without c" in caplog.text
    assert "saved without b" not in caplog.text
    assert [first[0], second[0], second[1]] == [whole[0][0], *whole[1] * 2]
    assert first[1] == pytest.approx(mean(losses(engine)[1:], [1, 2]))


# --- mistakes


@pytest.mark.parametrize("name", ["epoch_mean", "epoch_metrics", "reset_each_epoch"])
def test_what_has_no_epochs_or_no_name_is_refused(name):
    with rh.graph(train_step, total=0.0).as_default():
        with pytest.raises(ValueError, match=f"{name} goes by epochs.*steps_per_epoch"):
            getattr(rh, name)("total")
    with rh.graph(train_step, total=0.0, data=BATCHES).as_default():
        if name != "epoch_mean":
            with pytest.raises(ValueError, match="state must be a state of the step, got 'loss'"):
                getattr(rh, name)("loss")


@pytest.mark.every_engine
def test_a_name_that_nothing_has_is_told(engine):
    graph = rh.graph(train_step, total=np.float32(0), data=BATCHES, engine=engine)
    with graph.as_default(), pytest.raises(ValueError, match="losss"):
        rh.epoch_mean("losss")
        with rh.Session() as session:
            session.run("train_op")


@pytest.mark.every_engine
@pytest.mark.parametrize("given", [("batch", 1), ("loss", "batch")], ids=["value", "weight"])
def test_several_numbers_are_refused_in_the_run(given, engine):
    graph = rh.graph(train_step, total=np.float32(0), data=BATCHES, engine=engine)
    with graph.as_default():
        rh.epoch_mean(*given)
        with pytest.raises(ValueError, match="single number|one number"):
            with rh.Session() as session:
                session.run("train_op")


def test_a_state_without_compute_is_refused_in_the_run():
    with rh.graph(train_step, total=np.float32(0), data=BATCHES).as_default():
        value = rh.epoch_metrics("total")
        with pytest.raises(TypeError, match=r"'total' must have compute\(\)"):
            with rh.Session() as session:
                session.run(["train_op", value])


def test_an_object_that_is_only_emptied_is_refused():
    torch = pytest.importorskip("torch")

    class Emptied(torch.nn.Module):
        def compute(self):
            return 0.0

        def empty(self):
            return Emptied()

    def step(batch):
        return {"loss": torch.as_tensor(batch).mean()}

    graph = rh.torch.graph(step, ["loss"], data=BATCHES, metrics=Emptied())
    with graph.as_default():
        with pytest.raises(TypeError, match=r"'metrics' must have compute\(\) and reset\(\), got"):
            rh.epoch_metrics("metrics")
