"""The bridge to ``Trainer`` of transformers: what hooks see of a training, and do to it."""

import copy
import logging

import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

import runhooks as rh
from runhooks.testing import read_events

pytestmark = pytest.mark.filterwarnings("ignore")

ROUNDED = 0.5e-4 + 1e-6  # before version 5 Trainer logs four decimals of a loss


class Digits(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"images": self.images[index], "labels": self.labels[index]}


class Penalized(Trainer):
    """Trains another loss than its model returns."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        return outputs["loss"] + sum(it.square().sum() for it in model.parameters())


class Own(Trainer):
    """Computes the loss itself, and keeps the labels from the model."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        return nn.functional.cross_entropy(model(**inputs)["logits"], labels)


class Model(nn.Module):
    bad_step = None

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(64, 10)
        self.config = transformers.PretrainedConfig()  # label smoothing reads it
        self.calls = 0

    def forward(self, images, labels=None):
        self.calls += 1
        if self.calls == self.bad_step:
            raise ValueError("a bad batch")
        logits = self.net(images)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.fixture(autouse=True)
def _quiet():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("accelerate").setLevel(logging.ERROR)


@pytest.fixture
def make_trainer(digits, tmp_path):
    def make(*callbacks, model=None, eval_dataset=None, compute_metrics=None, cls=Trainer, **more):
        torch.manual_seed(0)
        arguments = TrainingArguments(
            **{
                "output_dir": str(tmp_path / "out"),
                "per_device_train_batch_size": 32,
                "num_train_epochs": 2,
                "learning_rate": 0.05,
                "logging_steps": 1,
                "save_strategy": "no",
                "report_to": [],
                "use_cpu": True,
                "disable_tqdm": True,
                **more,
            }
        )
        return cls(
            model=model or Model(),
            args=arguments,
            train_dataset=Digits(*digits),
            eval_dataset=eval_dataset,
            compute_metrics=compute_metrics,
            callbacks=list(callbacks),
        )

    return make


def logged(trainer, name):
    return [row[name] for row in trainer.state.log_history if name in row]


def test_values_are_those_that_trainer_logs(make_trainer, recorder, tmp_path):
    hook = recorder(loss="loss", rate="learning_rate")
    trainer = make_trainer(
        rh.bridges.transformers.Hooks([hook], tmp_path / "run", save_summaries_steps=1)
    )
    trainer.train()
    assert hook.steps == list(range(1, 17))
    assert hook.calls == ["begin", "session 0", "end 16"]
    assert hook.column("loss") == pytest.approx(logged(trainer, "loss"), abs=ROUNDED)
    assert hook.column("rate") == pytest.approx(logged(trainer, "learning_rate"))
    assert len(set(hook.column("rate"))) == 16
    events = read_events(tmp_path / "run")
    curve = [it.value for it in events if it.tag == "loss"]
    assert curve == pytest.approx(hook.column("loss"))


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize(
    "how", [{"cls": Penalized}, {"cls": Own}, {"label_smoothing_factor": 0.1}], ids=str
)
def test_the_loss_is_the_one_that_is_trained(make_trainer, recorder, how, batches):
    hook = recorder(loss="loss")
    hooks = rh.bridges.transformers.Hooks([rh.NanTensorHook("loss"), hook])
    trainer = make_trainer(hooks, gradient_accumulation_steps=batches, **how)
    trainer.train()
    assert len(hook.steps) == 16 / batches
    assert hook.column("loss") == pytest.approx(logged(trainer, "loss"), abs=ROUNDED)


def test_the_loss_of_accumulated_batches_is_that_of_the_update(make_trainer, recorder):
    hook = recorder(loss="loss")
    trainer = make_trainer(rh.bridges.transformers.Hooks([hook]), gradient_accumulation_steps=4)
    trainer.train()
    assert hook.steps == [1, 2, 3, 4]
    assert hook.column("loss") == pytest.approx(logged(trainer, "loss"), abs=ROUNDED)


def test_parameters_gradients_and_activations_by_name(make_trainer, recorder):
    hook = recorder(
        weight="model/net.weight",
        gradient="gradients/model/net.weight",
        norm="global_gradient_norm",
        activation="activations/model/net",
    )
    trainer = make_trainer(rh.bridges.transformers.Hooks([hook]), max_grad_norm=1e9)
    trainer.train()
    assert torch.equal(hook.values[-1]["weight"], trainer.model.net.weight)
    assert hook.column("norm") == pytest.approx(logged(trainer, "grad_norm"))
    assert all(it["norm"] >= it["gradient"].norm() > 0 for it in hook.values)
    assert hook.values[0]["activation"].shape == (32, 10)


def test_steps_at_which_nobody_asks_leave_the_trainer_alone(make_trainer):
    class Looks(TrainerCallback):
        seen = ()

        def on_pre_optimizer_step(self, args, state, control, **kwargs):
            self.seen = (*self.seen, "training_step" in vars(trainer))

    looks = Looks()
    hooks = [rh.LoggingTensorHook(["loss"], every_n_iter=8)]
    trainer = make_trainer(rh.bridges.transformers.Hooks(hooks), looks, num_train_epochs=1)
    trainer.train()
    assert looks.seen == (True, *[False] * 7)


def test_a_training_step_of_the_trainers_own_is_put_back(make_trainer, recorder):
    hook = recorder(loss="loss")
    trainer = make_trainer(rh.bridges.transformers.Hooks([hook]))
    step = trainer.training_step
    mine = trainer.training_step = lambda *args, **kwargs: 2 * step(*args, **kwargs)
    trainer.train()
    assert trainer.training_step is mine
    assert hook.column("loss") == pytest.approx(logged(trainer, "loss"), abs=ROUNDED)


def test_request_stop_makes_the_update_the_last(make_trainer, recorder):
    hook = recorder()
    hooks = [rh.StopAtStepHook(last_step=11), hook]
    trainer = make_trainer(rh.bridges.transformers.Hooks(hooks))
    trainer.train()
    assert trainer.state.global_step == 11
    assert hook.calls == ["begin", "session 0", "end 11"]


def test_a_training_resumes_in_mid_epoch_with_the_states_of_the_hooks(
    make_trainer, recorder, raises, tmp_path
):
    whole, first, second = (recorder(loss="loss") for _ in range(3))
    saving = {"save_strategy": "steps", "save_steps": 5}
    make_trainer(rh.bridges.transformers.Hooks([whole])).train()
    cut = raises(12, OSError("cut off"))
    with pytest.raises(OSError, match="cut off"):
        make_trainer(rh.bridges.transformers.Hooks([first, cut]), **saving).train()
    path = str(tmp_path / "out" / "checkpoint-10")
    trainer = make_trainer(rh.bridges.transformers.Hooks([second]), **saving)
    trainer.train(resume_from_checkpoint=path)
    assert first.calls == ["begin", "session 0", "on_exception cut off"]
    assert second.calls == ["begin", "session 10", "end 16"]
    assert second.runs == 16
    assert second.column("loss") == whole.column("loss")[10:]


def test_hooks_join_a_training_that_was_saved_without_them(make_trainer, recorder, tmp_path):
    hook, saving = recorder(), {"save_strategy": "steps", "save_steps": 5}
    make_trainer(**saving).train()
    trainer = make_trainer(rh.bridges.transformers.Hooks([hook]), **saving)
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-10"))
    assert hook.calls == ["begin", "session 10", "end 16"]
    assert hook.runs == 6


def test_metrics_of_an_evaluation(make_trainer, recorder, digits, tmp_path):
    hook = recorder(8, eval="metrics/eval_loss")
    hooks = rh.bridges.transformers.Hooks([hook], tmp_path / "run", save_summaries_steps=1)
    trainer = make_trainer(hooks, eval_dataset=Digits(*digits), eval_strategy="epoch")
    trainer.train()
    assert set(hook.column("eval")) == {logged(trainer, "eval_loss")[0]}
    assert {it.tag for it in read_events(tmp_path / "run") if it.tag} == {"learning_rate", "loss"}


def test_an_evaluation_stops_the_training(make_trainer, digits):
    validation = rh.bridges.ValidationHook()
    stop = rh.stop_if_lower_hook(validation.metric("eval_loss"), threshold=1e9)
    hooks = rh.bridges.transformers.Hooks([validation, stop])
    trainer = make_trainer(hooks, eval_dataset=Digits(*digits), eval_strategy="steps", eval_steps=3)
    trainer.train()
    assert trainer.state.global_step == 3
    assert validation.metrics_by_step()[3]["eval_loss"] == logged(trainer, "eval_loss")[0]


@pytest.mark.parametrize("name", ["a", "a_b"])
def test_evaluations_of_several_sets_are_one_validation(make_trainer, digits, tmp_path, name):
    images, labels = digits
    sets = {"a_b": Digits(images, labels.flip(0)), "a": Digits(images, labels)}
    validation = rh.bridges.ValidationHook(tmp_path / "eval")
    loss = validation.metric(f"eval_{name}_loss")
    hooks = [
        validation,
        rh.stop_if_no_decrease_hook(loss, patience=1),
        rh.ReduceOnPlateauHook(loss, factor=0.5, patience=1),
    ]
    trainer = make_trainer(
        rh.bridges.transformers.Hooks(hooks),
        eval_dataset=sets,
        eval_strategy="steps",
        eval_steps=2,
        learning_rate=0.0,
    )
    trainer.train()
    assert trainer.state.global_step == 6
    assert list(loss.by_step()) == [2, 4, 6]
    for each in sets:
        tag = f"eval_{each}_loss"
        found = [it[tag] for it in validation.metrics_by_step().values()]
        assert found == logged(trainer, tag)
        assert [it.step for it in read_events(tmp_path / "eval") if it.tag == tag] == [2, 4, 6]


def test_evaluations_of_other_data_are_none_of_the_hooks_that_lack_their_metric(
    make_trainer, digits
):
    class Evaluates(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            kept = copy.copy(control)  # evaluate changes it
            if state.global_step % 2 == 0:
                trainer.evaluate(trainer.train_dataset, metric_key_prefix="train")
            return kept

    both, train = (rh.bridges.ValidationHook(hook_name=name) for name in ("Both", "Train"))
    hooks = [
        both,
        rh.stop_if_no_decrease_hook(both.metric("eval_loss"), patience=1),
        rh.ReduceOnPlateauHook(both.metric("eval_loss"), factor=0.5, patience=1),
        train,
        rh.stop_if_no_decrease_hook(train.metric("train_loss"), patience=5),
    ]
    sets = {"eval_dataset": Digits(*digits), "eval_strategy": "steps", "eval_steps": 4}
    trainer = make_trainer(
        rh.bridges.transformers.Hooks(hooks), Evaluates(), learning_rate=0.0, **sets
    )
    trainer.train()
    assert trainer.state.global_step == 12
    found = both.metrics_by_step()
    assert list(found) == [4, 8, 12]
    assert all({"train_loss", "eval_loss"} <= it.keys() for it in found.values())
    assert list(train.metrics_by_step()) == [2, 4, 6, 8, 10, 12]


def test_metrics_that_are_no_numbers_are_left_out_unless_a_hook_acts_on_them(make_trainer, digits):
    def fit(name):
        validation = rh.bridges.ValidationHook()
        stop = rh.stop_if_lower_hook(validation.metric(name), threshold=-1.0)
        make_trainer(
            rh.bridges.transformers.Hooks([validation, stop]),
            eval_dataset=Digits(*digits),
            eval_strategy="epoch",
            compute_metrics=lambda _: {"accuracy": 0.5, "each": [0.5, 0.6], "report": "good"},
        ).train()
        return validation.metrics_by_step()

    for metrics in fit("eval_accuracy").values():
        assert metrics["eval_accuracy"] == 0.5
        assert metrics.keys().isdisjoint({"eval_each", "eval_report"})
    with pytest.raises(ValueError, match="'eval_each' must be a single number") as caught:
        fit("eval_each")
    assert caught.value.__notes__[0] == "hooks act on this metric of ValidationHook"
    with pytest.raises(TypeError, match="'eval_report' must be a real number, got 'good'"):
        fit("eval_report")


@pytest.mark.parametrize("place", ["batch", "hook"])
def test_hooks_hear_of_exceptions(make_trainer, recorder, raises, place):
    hook, model = recorder(loss="loss"), Model()
    model.bad_step = 3 if place == "batch" else None
    more = [] if place == "batch" else [raises(2, ValueError("a bad hook"))]
    with pytest.raises(ValueError, match=f"a bad {place}"):
        with rh.bridges.transformers.Hooks([hook, *more]) as hooks:
            trainer = make_trainer(hooks, model=model)
            trainer.train()
    assert hook.calls == ["begin", "session 0", f"on_exception a bad {place}"]
    assert "training_step" not in vars(trainer)


def test_a_trainer_takes_one_such_callback(make_trainer):
    hooks = [rh.bridges.transformers.Hooks() for _ in range(2)]
    with pytest.raises(ValueError, match="one callback with all hooks, got 2"):
        make_trainer(*hooks).train()


@pytest.mark.parametrize("is_added_later", [False, True])
def test_an_argument_that_would_lose_the_hooks_is_refused(make_trainer, tmp_path, is_added_later):
    saving = {"save_strategy": "steps", "save_steps": 5}
    make_trainer(rh.bridges.transformers.Hooks(), **saving).train()
    hooks = rh.bridges.transformers.Hooks()
    given = [] if is_added_later else [hooks]
    trainer = make_trainer(*given, **saving, restore_callback_states_from_checkpoint=True)
    if is_added_later:
        trainer.add_callback(hooks)
    with pytest.raises(ValueError, match="restore_callback_states_from_checkpoint must be False"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-10"))


def test_the_docs_show_what_runs(make_trainer, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(shown("Hugging Face Trainer"), {"trainer": make_trainer()})
    assert {it.tag for it in read_events("runs/a")} >= {"loss", "learning_rate"}
