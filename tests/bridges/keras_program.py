"""Trains with Keras on the backend ``KERAS_BACKEND``; writes what hooks saw of it as JSON."""

import contextlib
import csv
import json
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import recorder

import runhooks as rh
from runhooks.testing import read_events

RNG = np.random.default_rng(0)
X = RNG.random((256, 64), np.float32)  # 8 batches of 32
Y = (X @ RNG.normal(size=(64, 10))).argmax(1)
FETCHES = {"loss": "loss", "accuracy": "metrics/accuracy", "rate": "learning_rate"}


class Recorder(recorder.Recorder):
    """Keeps numbers, by default those of ``FETCHES``."""

    def __init__(self, **fetches):
        super().__init__(**(fetches or FETCHES))

    def after_run(self, run_context, run_values):
        numbers = {k: float(np.sum(v)) for k, v in run_values.results.items()}
        super().after_run(run_context, run_values._replace(results=numbers))


class Logs(keras.callbacks.Callback):
    """What Keras gives any callback."""

    def __init__(self):
        super().__init__()
        self.values = []

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(logs)


def make_model(cls=keras.Sequential, **compiled):
    # (keras.utils.set_random_seed loads TensorFlow, whatever the backend is.)
    dense = keras.layers.Dense(
        10, "softmax", kernel_initializer=keras.initializers.GlorotUniform(seed=0), name="dense"
    )
    layers = [keras.Input((64,)), dense]
    model = cls(layers)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], **compiled)
    return model


def fit(model, *callbacks, x=X, **more):
    arguments = {"batch_size": 32, "epochs": 2, "verbose": 0, **more}
    return model.fit(x, Y, callbacks=list(callbacks), **arguments)


class Freeze(rh.SessionRunHook):
    """Gives the learning rate another value after the tenth batch."""

    def after_run(self, run_context, run_values):
        session = run_context.session
        if session.global_step == 10:
            assert session.read("learning_rate")["learning_rate"] > 0
            session.assign({"learning_rate": 0.0})


class BadHook(rh.SessionRunHook):
    def after_run(self, run_context, run_values):
        raise ValueError("a bad hook")


class BadCallback(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        raise ValueError("a bad callback")


def cut_off(epoch, logs=None):
    """Ends a training after its first epoch."""
    if epoch == 1:
        raise ValueError("cut off")


def no_batch(batch, logs=None):
    """Ends a training before its first batch."""
    raise ValueError("no batch")


def curve(folder):
    """Every batch, as other callbacks, Keras's own CSV, the model and the event file have it."""
    hook, logs, model = Recorder(**FETCHES, kernel="model/dense/kernel"), Logs(), make_model()
    hooks = rh.bridges.keras.Hooks(
        [hook, Freeze()], output_dir=folder / "run", save_summaries_steps=1
    )
    fit(model, hooks, logs, keras.callbacks.CSVLogger(folder / "log.csv"))
    events = read_events(folder / "run")
    with (folder / "log.csv").open() as file:
        epochs = [float(row["loss"]) for row in csv.DictReader(file)]
    return {
        "steps": hook.steps,
        "calls": hook.calls,
        **{name: [it[name] for it in hook.values] for name in hook.fetches},
        "keras_loss": [it["loss"] for it in logs.values],
        "keras_accuracy": [it["accuracy"] for it in logs.values],
        "keras_epochs": epochs,
        "keras_kernel": float(np.sum(keras.ops.convert_to_numpy(model.weights[0]))),
        "events": [[it.step, it.value] for it in events if it.tag == "loss"],
        "tags": sorted({it.tag for it in events if it.tag}),
    }


def stop(folder):
    """A hook stops in the second epoch, where a callback would."""
    hook, model = Recorder(), make_model()
    hooks = rh.bridges.keras.Hooks([rh.StopAtStepHook(last_step=11), hook])
    fit(model, hooks, epochs=5)
    return {"iterations": int(model.optimizer.iterations), "steps": hook.steps}


def finished(folder):
    """A training that a hook has stopped is started again, and then for more steps."""
    hook, logs, model = Recorder(), Logs(), make_model()
    found = []
    for last_step in (5, 5, 7):
        hooks = rh.bridges.keras.Hooks([rh.StopAtStepHook(last_step=last_step), hook])
        history = fit(model, hooks, logs, epochs=5, validation_data=(X[:32], Y[:32])).history
        found.append([int(model.optimizer.iterations), sorted(history)])
    hooks = rh.bridges.keras.Hooks([rh.StopAtStepHook(last_step=7)])
    with contextlib.suppress(ValueError):
        fit(model, hooks, keras.callbacks.LambdaCallback(on_train_batch_begin=no_batch))
    fit(model, epochs=1)
    return {
        "calls": hook.calls,
        "steps": hook.steps,
        "logs": [sorted(it) for it in logs.values],
        "found": found,
        "then": int(model.optimizer.iterations),
    }


def validation(folder):
    """A hook stops at the end of the epoch at which Keras's own early stopping does."""

    def metric(y_true, y_pred):  # best in the first epoch
        return keras.ops.mean(keras.ops.zeros_like(y_pred))

    def run(*callbacks):
        model = make_model()
        model.compile("adam", "sparse_categorical_crossentropy", metrics=[metric])
        history = fit(model, *callbacks, epochs=6, validation_data=(X[:32], Y[:32]))
        return len(history.epoch)

    validation = rh.bridges.ValidationHook(folder / "eval")
    stop = rh.stop_if_no_decrease_hook(
        validation.metric("val_metric"), max_steps_without_decrease=16
    )
    ours = run(rh.bridges.keras.Hooks([validation, stop]))
    theirs = run(keras.callbacks.EarlyStopping("val_metric", patience=2, mode="min"))
    steps = [it.step for it in read_events(folder / "eval") if it.tag == "val_metric"]
    return {"ours": ours, "theirs": theirs, "steps": steps}


def same_paths(folder):
    """Two models from one function have weights of one path."""

    def encoder(name):
        image = keras.Input((64,))
        return keras.Model(image, keras.layers.Dense(2, name="code")(image), name=name)

    image, left, right = keras.Input((64,)), encoder("left"), encoder("right")
    codes = keras.layers.Concatenate()([left(image), right(image)])
    model = keras.Model(image, keras.layers.Dense(10, "softmax", name="head")(codes))
    model.compile("sgd", "sparse_categorical_crossentropy")
    hook = Recorder(all="model", first="model/code/kernel", second="model/code/kernel_1")
    hook.after_run = lambda context, values: hook.values.append(values.results)
    fit(model, rh.bridges.keras.Hooks([hook]), epochs=1)
    kernels = [keras.ops.convert_to_numpy(it.layers[-1].kernel) for it in (left, right)]
    last = hook.values[-1]
    same = [np.array_equal(last[it], x) for it, x in zip(("first", "second"), kernels, strict=True)]
    return {"all": sorted(last["all"]), "same": same}


def several_steps(folder):
    """Two batches are one run."""
    hook = Recorder(loss="loss")
    fit(make_model(steps_per_execution=2), rh.bridges.keras.Hooks([hook]), epochs=1)
    return {"steps": hook.steps, "calls": hook.calls}


def resume(folder):
    """A training that is cut off in its second epoch, and goes on from Keras's own backup."""

    class CutOff(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.global_step == 12:
                raise KeyboardInterrupt

    def callbacks(*hooks):
        backup = keras.callbacks.BackupAndRestore(folder / "backup", save_freq=5)
        return rh.bridges.keras.Hooks(hooks), backup

    first, second = Recorder(), Recorder()
    with contextlib.suppress(KeyboardInterrupt):
        fit(make_model(), *callbacks(first, CutOff()))
    fit(make_model(), *callbacks(second))
    return {
        "first": first.steps,
        "second": second.steps,
        "runs": second.runs,
        "calls": [*first.calls, *second.calls],
    }


def load_weights(folder):
    """Weights that a checkpoint callback has saved bring the states back."""
    first, second = Recorder(), Recorder()
    path = str(folder / "{batch}.weights.h5")
    save = keras.callbacks.ModelCheckpoint(path, save_freq=3, save_weights_only=True)
    fit(make_model(), rh.bridges.keras.Hooks([first]), save, epochs=1)
    model, hooks = make_model(), rh.bridges.keras.Hooks([second])
    model.optimizer.build(model.trainable_variables)
    hooks.set_model(model)
    model.load_weights(path.format(batch=6))
    fit(model, hooks, epochs=1)
    plain = make_model()
    plain.optimizer.build(plain.trainable_variables)
    plain.load_weights(path.format(batch=6))  # without the callback the states are no obstacle
    return {"steps": second.steps, "runs": second.runs, "plain": int(plain.optimizer.iterations)}


def counts(folder):
    """Fits of a model whose optimizer does not count its batches, and one that is cut off."""

    def compiled(model):
        optimizer = keras.optimizers.SGD(gradient_accumulation_steps=4)
        model.compile(optimizer, "sparse_categorical_crossentropy")
        return model

    def steps(model, *callbacks):
        hook = Recorder(loss="loss")
        with contextlib.suppress(ValueError):
            fit(model, rh.bridges.keras.Hooks([hook]), *callbacks)
        return [hook.steps[0], hook.steps[-1]]

    model = compiled(make_model())
    fit(model, epochs=1)  # of which no hook hears
    found = {"fits": [steps(model), steps(model, BadCallback()), steps(model)]}
    found["compiled"] = steps(compiled(model))
    path = str(folder / "a.weights.h5")
    model.save_weights(path)
    other = compiled(make_model())
    rh.bridges.keras.Hooks().set_model(other)
    other.optimizer.build(other.trainable_variables)
    other.load_weights(path)
    found["loaded"] = steps(other)
    backup = keras.callbacks.BackupAndRestore(folder / "backup")
    model = compiled(make_model())
    found["cut_off"] = steps(model, backup, keras.callbacks.LambdaCallback(on_epoch_begin=cut_off))
    found["resumed"] = steps(compiled(make_model()), backup)
    return found


def exceptions(folder):
    """A batch, a hook, and another callback raise."""

    class BadModel(keras.Sequential):
        def train_step(self, *args, **kwargs):
            raise ValueError("a bad batch")

    found = {}
    for name, cls, more, others in (
        ("batch", BadModel, [], []),
        ("hook", keras.Sequential, [BadHook()], []),
        ("callback", keras.Sequential, [], [BadCallback()]),
    ):
        hook, model = Recorder(), make_model(cls)
        hooks = rh.bridges.keras.Hooks([hook, *more])
        try:
            with hooks if name == "callback" else contextlib.nullcontext():
                fit(model, hooks, *others)
        except ValueError as error:
            raised = str(error).splitlines()[0]
        found[name] = {"raised": raised, "calls": hook.calls}
        if cls is keras.Sequential:
            fit(model, epochs=1)  # the model is as it was
    return found


def left(folder):
    """Another callback, or a hook, ends a training by an error, and the model is trained again."""
    model, hook = make_model(), Recorder()
    fit(model, epochs=1)
    train_function = model.train_function
    found = {}
    with contextlib.suppress(ValueError):
        fit(model, rh.bridges.keras.Hooks([BadHook()]))
    found["hook"] = model.train_function is train_function
    hooks = rh.bridges.keras.Hooks([hook])
    for name, callback in (("same", hooks), ("other", rh.bridges.keras.Hooks([Recorder()]))):
        with contextlib.suppress(ValueError):
            fit(model, hooks, BadCallback())
        hook.calls.append(name)
        fit(model, callback, epochs=1)
        found[name] = model.train_function is train_function
    fit(model, rh.bridges.keras.Hooks(), rh.bridges.keras.Hooks(), epochs=1)
    found["two"] = model.train_function is train_function
    return {"restored": found, "calls": [it.partition(" ")[0] for it in hook.calls]}


def refused(folder):
    """What hooks may not do."""

    class Feeding(rh.SessionRunHook):
        def before_run(self, run_context):
            return rh.SessionRunArgs("loss", feed_dict={"loss": 1.0})

    found = {}
    for name, make in {
        "gradients": lambda: Recorder(gradient="gradients/dense/kernel"),
        "feed": Feeding,
        "checkpoints": lambda: rh.CheckpointSaverHook(folder, save_steps=1),
        "feed_fn": lambda: rh.FeedFnHook(lambda: {"loss": 1.0}),
    }.items():
        model = make_model()
        try:
            fit(model, rh.bridges.keras.Hooks([make()]))
        except (RuntimeError, ValueError) as error:
            found[name] = [str(error), int(model.optimizer.iterations)]
    return found


def docs(folder):
    """What docs/bridges.md shows."""
    text = (Path(__file__).parents[2] / "docs" / "bridges.md").read_text()
    _, _, rest = text.partition("## Keras\n\n```python\n")
    code, _, _ = rest.partition("```")
    model = make_model()
    with contextlib.chdir(folder):
        exec(code, {"model": model, "images": X, "labels": Y})
    events = read_events(folder / "runs" / "a")
    return {"iterations": int(model.optimizer.iterations), "steps": [it.step for it in events]}


if __name__ == "__main__":
    output, *names = sys.argv[1:]
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            found[name] = globals()[name](Path(directory))
    Path(output).write_text(json.dumps(found))
