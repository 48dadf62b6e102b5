"""The programs of the pages run: all code of a page, from above to below, as one program."""

import io
import itertools
import logging
import re
import runpy
import textwrap
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Run the program of a page in an empty folder; return its names and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(name, **names):
        code = re.findall(r"^( *```)python\n(.*?)^\1", (DOCS / name).read_text(), re.S | re.M)
        with redirect_stdout(io.StringIO()) as printed:
            for _, block in code:
                exec(compile(textwrap.dedent(block), name, "exec"), names)
        return names, printed.getvalue().splitlines()

    return run


def make_steps(graph, last_step, directory):
    hooks = [rh.StopAtStepHook(last_step=last_step)]
    with (
        graph.as_default(),
        rh.MonitoredTrainingSession(checkpoint_dir=directory, hooks=hooks) as session,
    ):
        while not session.should_stop():
            session.run("train_op")


def test_train_step(page):
    names, _ = page("train-step.md")
    accuracies = [it["accuracy"] for it in names["evaluation"].metrics_by_step().values()]
    assert len(accuracies) == 3
    assert accuracies[-1] > 0.9
    training, evaluation = (rh.events.read("runs/a")[it] for it in (".", "eval"))
    assert {"grads/kernel", "grads/bias"} == training.histograms.keys()
    assert evaluation.scalars["accuracy"].values.tolist() == accuracies
    assert names["session"].global_step == 20 * 32 / 8
    assert names["session"].stop_reason.endswith("has no more elements (epochs=20)")


def test_shuffled_epochs_resume_in_their_order(page):
    names, _ = page("train-step.md")
    for last_step in (30, 80):  # 30 is in the middle of an epoch
        data = names["Shuffled"](*next(names["batches"](0)), batch_size=8)
        graph = rh.graph(names["train_step"], state=names["start"], data=data, epochs=None)
        make_steps(graph, last_step, "runs/resumed")
    resumed, undisturbed = (rh.load(f"runs/{it}", "state/kernel") for it in ("resumed", "epochs"))
    assert resumed.tolist() == undisturbed.tolist()


def test_names(page):
    names, _ = page("names.md")
    assert names["kernel"].tolist() == [1 - 0.5**5] * 3
    assert names["values"]["norm"] == pytest.approx(names["values"]["loss"] ** 0.5)


def test_write_a_hook(page):
    _, printed = page("write-a-hook.md")
    assert printed[0].startswith("StopWhenGood (the loss is good) at step ")
    norms = printed[1:5]
    assert [line.partition(":")[0] for line in norms] == [
        f"step {step}" for step in (50, 100, 150, 200)
    ]
    assert printed[5:] == ["x was [1.9 2.5]", "30 runs", "70 runs"]
    run = rh.events.read("runs/hook").only
    assert run.scalars["largest_gradient"].steps.tolist() == [50, 100, 150, 200]
    assert run.histograms["gradient"].steps.tolist() == [50, 100, 150, 200]
    assert len(list(Path("runs/hook").glob("events.*"))) == 1


def test_hooks(page, caplog):
    with caplog.at_level(logging.INFO, "runhooks"):
        page("hooks.md")
    logged = [line for line in caplog.messages if line.startswith("loss = ")]
    assert len(logged) == 6
    run = rh.events.read("runs/hooks").only
    assert {"loss", "gradient_norm", "gradient_norm/x"} <= run.scalars.keys()


def test_cadences(page):
    def step(x):
        return x + 1, {"loss": 1.0, "grads": np.ones(3)}

    page("cadences.md", rh=rh, graph=rh.graph(step, x=np.zeros(2)))
    run = rh.events.read("runs/a").only
    assert run.histograms["grads"].steps.tolist() == [500, 1000, 1500, 2000]
    assert len(run.scalars["loss"].steps) == 200


def test_epochs(page):
    names, printed = page("epochs.md")
    assert [line.split()[0] for line in printed] == ["1", "2", "3", "4"] * 3
    assert names["session"].global_step == 24


@pytest.mark.slow
def test_jax(page, caplog):
    names, printed = page("jax.md")
    *losses, slow, fast = printed
    assert [float(line) < 0.5 for line in losses] == [True] * 5
    assert [line.split()[0] for line in (slow, fast)] == ["slow", "fast"]
    assert float(fast.split()[1]) < float(slow.split()[1])
    assert {"grads/kernel", "gradient_norm"} <= rh.events.read("runs/linen").only.tags.keys()
    for last_step in (150, 300):  # 150 is between two updates
        states = {it: names[it] for it in ("model", "optimizer")}
        graph = rh.jax.graph(names["train_step"], data=names["batches"], **states)
        make_steps(graph, last_step, "runs/resumed")
    resumed, undisturbed = (rh.load(f"runs/{it}", "model/kernel") for it in ("resumed", "micro"))
    assert resumed.tolist() == undisturbed.tolist()
    if not hasattr(getattr(names["optax"], "tree", None), "norm"):
        return  # this optax is older than the page's
    with caplog.at_level(logging.INFO, "runhooks"):
        graph = rh.jax.graph(
            names["step_with_norm"], state=names["create_state"], data=names["batches"]
        )
        with graph.as_default():
            rh.summary.scalar("gradient_norm")
        make_steps(graph, 3, "runs/norm")
    assert rh.events.read("runs/norm").only.scalars["gradient_norm"].values.tolist() > [0]
    assert sum("compiled" in message for message in caplog.messages) == 1


def test_pytorch(page, caplog):
    with caplog.at_level(logging.INFO, "runhooks"):
        names, _ = page("pytorch.md")
    assert rh.read_eval_metrics("runs/mlp/eval")[400]["test_loss"] < 0.05
    assert "gradient_norm" in rh.events.read("runs/mlp")["."].scalars
    assert Path("model.pt").is_file()
    assert names["session"].global_step == 2  # updates


@pytest.mark.slow
def test_porting(page):
    _, printed = page("porting.md")  # it compares the weights of both loops itself
    by_hand = [line.split()[-1] for line in printed if line.startswith("epoch ")][:3]
    hooked = [line.split()[3] for line in printed if line.startswith("epoch, loss: ")]
    assert [float(it.strip("tensor(,")) for it in hooked] == pytest.approx(
        [float(it) for it in by_hand], abs=1e-3
    )
    assert rh.read_eval_metrics("runs/mlp/test").keys() == {8, 16, 24}


def test_resume(page):
    _, printed = page("resume.md")
    assert printed == ["SIGTERM at step 130", "StopAtStepHook at step 300"]


def test_event_files(page):
    _, printed = page("event-files.md")
    assert printed == ["0.001 at step 999"]
    assert "loss" in Path("both.jsonl").read_text()
    assert rh.events.read("runs/plain").only.scalars["loss"].steps.tolist() == list(range(1100))


def test_reading(page):
    names, _ = page("reading.md")
    assert names["best"].index.tolist() == ["rate-0.02", "rate-0.1"]
    assert names["losses"]["hparams/rate"].unique().tolist() == [0.02, 0.1]
    assert len(names["one"]) == 500
    assert Path("loss.png").is_file()


def test_testing_hooks(page):
    names, _ = page("testing-hooks.md")
    assert names["read_events"]("runs/test")


def test_the_first_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(DOCS.parent / "examples" / "quickstart_jax.py"))
    learned = rh.load("runs/jax-line", "params")
    assert learned["weights"].tolist() == pytest.approx([2, -3], abs=1e-2)
    assert "grads/weights" in rh.events.read("runs").only.histograms


def test_evaluation(page):
    import jax
    import jax.numpy as jnp
    import optax

    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=0.5)

    def create_state():
        params = {"dense": {"kernel": jnp.zeros((2, 2)), "bias": jnp.zeros(2)}}
        return {"params": params, "opt_state": optimizer.init(params)}

    def scores_of(params, images):
        return images @ params["dense"]["kernel"] + params["dense"]["bias"]

    def train_step(state, images, labels):
        def loss_of(params):
            scores = scores_of(params, images)
            return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

        loss, grads = jax.value_and_grad(loss_of)(state["params"])
        updates, opt_state = optimizer.update(grads, state["opt_state"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt_state": opt_state}, {"loss": loss, "grads": grads}

    images, labels = np.eye(2, dtype=np.float32), np.arange(2)
    data = lambda step: itertools.repeat((images, labels))  # noqa: E731
    names, _ = page(
        "evaluation.md",
        rh=rh,
        graph=rh.jax.graph(train_step, state=create_state, data=data, steps_per_epoch=50),
        scores_of=scores_of,
        test_loader=[(images, labels)],
    )
    assert names["session"].global_step == 100
    assert names["evaluation"].metrics_by_step() == {50: {"accuracy": 1.0}, 100: {"accuracy": 1.0}}
    assert names["averaged"].metrics_by_step()[100] == {"accuracy": 1.0}
    assert names["ema"].num_updates == 100
    assert rh.load("runs/a", "ema/state/params/dense/kernel").shape == (2, 2)
    assert {"gradient_norm", "gradient_norm/dense"} <= rh.events.read("runs/a")["."].scalars.keys()
