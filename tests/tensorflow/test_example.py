"""The examples of TensorFlow programs run, stop and go on."""

from pathlib import Path

import pytest
import tensorflow

import runhooks
from runhooks.testing import read_events

pytestmark = pytest.mark.slow

tf = tensorflow.compat.v1

EXAMPLES = Path(__file__).parents[2] / "examples"
TF1 = EXAMPLES / "mnist_style_tf1.py"


@pytest.fixture
def run(launcher, tmp_path):
    """Runs a program in the folder of the test; what it printed."""

    def run(program, *arguments):
        log = tmp_path / "log"
        process = launcher.start(log, program, "--dir", tmp_path, *arguments)
        assert launcher.wait(process) == 0, log.read_text()
        return log.read_text()

    return run


def test_program_of_2017_reads_digits_and_goes_on(run, tmp_path):
    run(TF1, "--steps", "60")
    assert tf.train.latest_checkpoint(str(tmp_path)) == f"{tmp_path}/model.ckpt-60"
    printed = run(TF1, "--steps", "210")
    step, _, accuracy = printed.splitlines()[-1].partition(": ")
    assert step == "step 210"
    assert float(accuracy.partition("%")[0]) > 90
    # From step 60 on: step 200 is saved as by a run that was never stopped, none is made twice.
    saved = tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths
    assert [path.rpartition("-")[2] for path in saved] == ["0", "60", "200", "210"]
    # TensorFlow tells where something deprecated is called from.
    assert str(Path(runhooks.__file__).parent) not in printed
    tags = {value.tag for value in read_events(tmp_path)}
    assert {"loss", "accuracy", "conv1/weights", "digits/image/0", "global_step/sec"} <= tags


def test_one_line_is_marked_and_brings_tensorflows_back():
    lines = TF1.read_text().splitlines()
    (marked,) = [line for line in lines if line.startswith("from runhooks")]
    assert marked.endswith("# the changed line; it was: train = tf.train")
    assert [line for line in lines if "rh." in line] == []


def test_keras_step_learns_and_goes_on(run):
    program = EXAMPLES / "tf2_function.py"
    run(program, "--steps", "60")
    printed = run(program, "--steps", "120")
    assert "resumed from step 60" in printed
    step, _, accuracy = printed.splitlines()[-1].partition(": ")
    assert step == "step 120"
    assert float(accuracy.partition("%")[0]) > 90


def test_program_moved_to_jax_has_the_same_hooks_and_loop_and_reads_digits(jax_launcher, tmp_path):
    moved = EXAMPLES / "mnist_style_jax.py"
    one, other = (
        program.read_text().partition("        test = {images:") for program in (TF1, moved)
    )
    assert one[2] == other[2] != ""
    # Compiling takes longer than the steps.
    program = f"""
import os, runpy, sys
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
sys.path.insert(0, {str(EXAMPLES)!r})
runpy.run_path({str(moved)!r}, run_name="__main__")
"""
    status, said = jax_launcher.run(tmp_path, program, "--dir", tmp_path, "--steps", 80)
    assert status == 0, said
    step, _, accuracy = said.splitlines()[-1].partition(": ")
    assert step == "step 80"
    assert float(accuracy.partition("%")[0]) > 90
