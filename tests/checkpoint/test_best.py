"""Which checkpoint of a directory is meant."""

import pytest

import runhooks as rh
from runhooks.errors import DataLossError, NotFoundError

ACCURACY = {1: 0.5, 2: 0.9, 3: 0.7, 4: float("nan")}


def save(directory, session, keep, metrics, steps=ACCURACY):
    saver = rh.Saver(keep=keep, metrics=metrics)
    for step in steps:
        saver.save(session(step), directory / "model.ckpt", global_step=step)


@pytest.fixture
def run(tmp_path, at_step):
    """Checkpoints of a run that knows that high accuracies and low losses are best."""
    keep = [rh.KeepLast(9), rh.KeepBest("accuracy"), rh.KeepBest("loss", mode="min")]
    save(tmp_path, at_step, keep, lambda it: {"accuracy": ACCURACY[it], "loss": it, "time": 1 / it})
    return tmp_path


def damage(path):
    file = path / "checkpoint.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def weights(*args, **kwargs):
    """The step at which the weights that are loaded were saved."""
    return int(rh.load(*args, only="weights", **kwargs)[0])


def test_the_best_is_found_with_its_metrics(run):
    best = rh.best_checkpoint(run, "accuracy")
    assert (best.path, best.step) == (str(run / "model.ckpt-2"), 2)
    assert best.metrics == {"accuracy": 0.9, "loss": 2, "time": 0.5}


def test_the_mode_is_that_of_the_saver_unless_it_is_given(run):
    assert rh.best_checkpoint(run, "loss").step == 1
    assert rh.best_checkpoint(run, "loss", "max").step == 4
    assert rh.best_checkpoint(str(run), "time", mode="min").step == 4
    with pytest.raises(ValueError, match="mode must be 'max' or 'min'.*'time'"):
        rh.best_checkpoint(run, "time")


def test_a_metric_that_none_has_is_an_error_with_the_near_ones(run, tmp_path):
    with pytest.raises(ValueError, match="'acuracy'.*did you mean 'accuracy'"):
        rh.best_checkpoint(run, "acuracy")
    with pytest.raises(NotFoundError, match="no checkpoint"):
        rh.best_checkpoint(tmp_path / "empty", "accuracy")


def test_without_metrics_there_is_no_best(tmp_path, at_step):
    save(tmp_path, at_step, [rh.KeepLast(5)], None)
    with pytest.raises(ValueError, match="no metrics"):
        rh.best_checkpoint(tmp_path, "accuracy", "max")


def test_the_newest_is_loaded_unless_a_step_or_the_best_is_asked_for(run):
    assert weights(run) == 4
    assert weights(run, step=3) == 3
    assert weights(run, best="accuracy") == 2
    assert weights(run, best="loss", mode="max") == 4
    assert weights(run / "model.ckpt-1") == 1


def test_a_damaged_newest_gives_way_to_the_one_before(run, caplog):
    damage(run / "model.ckpt-4")
    assert weights(run) == 3
    assert "trying the one before" in caplog.text


def test_what_was_asked_for_by_name_gives_way_to_nothing(run):
    damage(run / "model.ckpt-2")
    for choice in ({"step": 2}, {"best": "accuracy"}):
        with pytest.raises(DataLossError, match="model.ckpt-2.*checksum"):
            rh.load(run, **choice)
    with pytest.raises(DataLossError, match="model.ckpt-2.*checksum"):
        rh.load(run / "model.ckpt-2")


def test_all_damaged(run):
    for path in run.glob("model.ckpt-*"):
        damage(path)
    with pytest.raises(DataLossError, match="none of the 4 checkpoints"):
        rh.load(run)


def test_a_step_that_is_not_there_is_an_error_with_those_that_are(run):
    with pytest.raises(NotFoundError, match="step 7; the steps are 1, 2, 3, 4"):
        rh.load(run, step=7)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"step": 1, "best": "accuracy"}, "step and best cannot both"),
        ({"step": 1.5}, "step must be a whole number"),
        ({"best": 3}, "best must be a str"),
        ({"mode": "max"}, "mode must be"),
        ({"best": "accuracy", "mode": "most"}, "mode must be 'max' or 'min'.*'most'"),
    ],
)
def test_arguments_are_checked(choice, message, tmp_path):
    with pytest.raises((TypeError, ValueError), match=message):
        rh.load(tmp_path, **choice)


def test_one_checkpoint_leaves_no_choice(run):
    with pytest.raises(ValueError, match="model.ckpt-1 is one checkpoint"):
        rh.load(run / "model.ckpt-1", step=1)


def test_where_there_is_nothing(tmp_path):
    with pytest.raises(NotFoundError, match="there is no checkpoint or file .*nothing"):
        rh.load(tmp_path / "nothing")
    with pytest.raises(NotFoundError, match="there is no checkpoint in"):
        rh.load(tmp_path)
    for suffix in ("index", "data-00000-of-00001"):
        (tmp_path / f"model.ckpt-5.{suffix}").touch()
    with pytest.raises(NotFoundError, match="TensorFlow"):
        rh.load(tmp_path)
    with pytest.raises(TypeError, match="source must be given"):
        rh.load(None)
