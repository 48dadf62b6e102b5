"""What goes wrong around a session: directories that vanish, forks, signals, errors of hooks."""

import itertools
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import runhooks as rh


@pytest.fixture
def train_op(graph):
    return rh.train.get_or_create_global_step().assign_add(1, name="train_op")


class Loses(rh.SessionRunHook):
    """Loses the session in the run after ``step``, having called ``before``."""

    def __init__(self, step, before):
        self.step, self.before = step, before

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == self.step and self.before is not None:
            before, self.before = self.before, None
            before()
            raise rh.errors.AbortedError("lost")


def policy(failures=3):
    return rh.RecoveryPolicy(failures=failures, first_wait_secs=0)


def test_a_relative_directory_survives_chdir(train_op, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with rh.MonitoredTrainingSession(
        checkpoint_dir="run",
        save_checkpoint_steps=1,
        hooks=[Loses(3, lambda: os.chdir("elsewhere"))],
        recovery=policy(),
    ) as session:
        for _ in range(4):
            session.run(train_op)
        assert session.recoveries == 1
        assert session.global_step == 4
    assert rh.latest_checkpoint(tmp_path / "run") == str(tmp_path / "run" / "model.ckpt-4")
    assert not list((tmp_path / "elsewhere").rglob("model.ckpt*"))


def test_recovery_does_not_start_over_when_the_directory_is_gone(train_op, tmp_path):
    run, away = tmp_path / "run", tmp_path / "away"
    with pytest.raises(rh.errors.UnavailableError, match="start over") as caught:
        with rh.MonitoredTrainingSession(
            checkpoint_dir=run,
            save_checkpoint_steps=1,
            hooks=[Loses(3, lambda: run.rename(away))],
            recovery=policy(failures=2),
        ) as session:
            for _ in range(4):
                session.run(train_op)
    assert str(run) in str(caught.value)
    assert rh.latest_checkpoint(away) == str(away / "model.ckpt-2")


def test_recovery_waits_for_a_directory_that_comes_back(train_op, tmp_path):
    run, away = tmp_path / "run", tmp_path / "away"

    class Returns(rh.RecoveryPolicy):
        def wait_secs(self, failure):
            if away.exists():
                away.rename(run)
            return 0.0

    with rh.MonitoredTrainingSession(
        checkpoint_dir=run,
        save_checkpoint_steps=1,
        hooks=[Loses(3, lambda: run.rename(away))],
        recovery=Returns(failures=5, first_wait_secs=0),
    ) as session:
        for _ in range(4):
            session.run(train_op)
        assert session.global_step == 4


FORKS = """
import contextlib, os, signal, sys, time
import runhooks as rh

number = int(sys.argv[1])
with rh.Graph().as_default():
    op = rh.train.get_or_create_global_step().assign_add(1)
    with rh.MonitoredSession() as session:
        session.run(op)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(KeyboardInterrupt):
                os.write(write, b".")
                time.sleep(60)
                os._exit(1)
            os._exit(77)
        os.read(read, 1)
        os.kill(child, number)
        print(os.waitpid(child, 0)[1])
        assert session.stop_reason is None
        session.run(op)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_forked_child_ends_on_a_signal(number):
    # In a process of its own: JAX, which other tests have imported, minds a fork.
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(int(number))], capture_output=True, text=True, check=True
    )
    status = int(done.stdout)
    if number == signal.SIGTERM:
        assert os.WTERMSIG(status) == number
    else:
        assert os.WEXITSTATUS(status) == 77  # KeyboardInterrupt, as without a session


@pytest.mark.parametrize("hooks", [False, []])
def test_a_loop_without_hooks_hears_a_signal(train_op, hooks):
    with rh.MonitoredSession() as session:
        for step in range(100):
            if step == 3:
                signal.raise_signal(signal.SIGTERM)
            session.run(train_op, hooks=hooks)
    assert session.global_step == 4


@pytest.mark.parametrize("name", ["inputs/data", "objects/model"])
def test_a_hook_cannot_take_the_name_of_an_input_in_checkpoints(graph, name):
    class Hook(rh.SessionRunHook):
        hook_name = name

    with pytest.raises(ValueError, match="hook_name"):
        rh.MonitoredSession(hooks=[Hook()])


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.uint64(2**64 - 1), np.int64),
        (np.int64(300), np.int8),
        (np.int32(-1), np.uint8),
        (np.array(300), np.int8),
        (300, np.int8),
    ],
)
def test_numbers_that_do_not_fit_a_placeholder_are_refused(graph, value, dtype):
    x = rh.placeholder("x", dtype)
    with rh.Session() as session:
        with pytest.raises(ValueError, match="x:0"):
            session.run(x, {x: value})
        assert session.run(x, {x: dtype(7)}) == 7


def test_a_loop_that_changes_variables_and_no_step_is_warned_of(graph, caplog):
    rh.train.get_or_create_global_step()
    weights = rh.Variable(np.float32(0), name="weights")
    train_op = weights.assign_add(np.float32(1))
    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=5)]) as session:
        for _ in range(201):
            session.run(train_op)
    (warning,) = caplog.messages
    assert "add global_step.assign_add(1)" in warning


class Begins(rh.SessionRunHook):
    def __init__(self):
        self.ended = 0

    def after_run(self, run_context, run_values):
        pass

    def end(self, session):
        self.ended += 1


def test_a_new_hook_in_each_run_is_ended_once(train_op):
    hooks = [Begins() for _ in range(300)]
    with rh.MonitoredSession() as session:
        for hook in hooks:
            session.run(train_op, hooks=[hook])
    assert [hook.ended for hook in hooks] == [1] * 300


def test_what_is_compiled_for_ever_new_fetches_does_not_pile_up(graph):
    weights = rh.Variable(np.float32(1), name="weights")
    with rh.MonitoredSession() as session:
        for i in range(1500):
            assert session.run({f"w/{i}": weights}) == {f"w/{i}": 1}
    assert len(graph.planned_runs) <= 1000


def nested(fetches, depth, kind):
    for _ in range(depth):
        fetches = kind(fetches)
    return fetches


@pytest.mark.parametrize("kind", [lambda it: [it], lambda it: (it,), lambda it: {"it": it}])
@pytest.mark.parametrize("monitored", [False, True])
def test_fetches_nested_too_deeply_are_one_clear_error(graph, train_op, kind, monitored):
    class Asks(rh.SessionRunHook):
        def before_run(self, run_context):
            return rh.SessionRunArgs(train_op)

    fetches = nested(train_op, 900, kind)
    with rh.MonitoredSession(hooks=[Asks()]) if monitored else rh.Session() as session:
        for call in (session.run, lambda it: session.make_callable(it)()):
            with pytest.raises(ValueError, match="nested at most 256 levels deep") as caught:
                call(fetches)
            assert not hasattr(caught.value, "__notes__")
        assert session.global_step == 0


def test_hook_that_runs_its_own_session_for_ever_is_noted_once(graph, train_op):
    class Recurs(rh.SessionRunHook):
        def before_run(self, run_context):
            session.run(train_op)

    with pytest.raises(RecursionError) as caught, rh.MonitoredSession(hooks=[Recurs()]) as session:
        session.run(train_op)
    assert caught.value.__notes__ == ["in before_run of the hook Recurs"]


@pytest.mark.every_engine
def test_hook_may_run_its_session_with_no_hooks(graph):
    class Reads(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            read.append(int(run_context.session.run(step, hooks=False)))
            with pytest.raises(ValueError, match=r"hooks must be False, got \[.*Reads"):
                run_context.session.run(step, hooks=[self])

    read, step = [], rh.train.get_or_create_global_step()
    train_op = step.assign_add(1, name="train_op")
    with rh.MonitoredSession(hooks=[Reads()]) as session:
        for _ in range(3):
            session.run(train_op)
    assert read == [1, 2, 3]


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError("end")]
)
def test_whatever_leaves_one_end_the_others_are_called(train_op, tmp_path, error):
    class Fails(rh.SessionRunHook):
        def end(self, session):
            raise error

    other = Begins()
    with pytest.raises(type(error)):
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_checkpoint_secs=600, hooks=[Fails(), other]
        ) as session:
            session.run(train_op)
    assert other.ended == 1
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1")


@pytest.mark.every_engine
def test_a_run_whose_host_part_fails_changes_nothing_or_on_jax_all_and_says_so(graph, engine):
    weights = rh.Variable(np.zeros(2, np.float32), name="weights")
    step = rh.train.get_or_create_global_step()
    train_op = rh.group(weights.assign_add(np.ones(2, np.float32)), step.assign_add(1))
    picture = rh.summary.image("picture", weights)
    with rh.Session() as session:
        with pytest.raises((ValueError, TypeError)) as caught:
            session.run([train_op, picture])
        assert session.run(weights).tolist() == [session.global_step] * 2
        if session.global_step:
            assert engine == "jax"
            assert any("new values" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("apart", [False, True])
def test_a_ctrl_c_between_any_two_calls_of_a_run_leaves_all_or_nothing(graph, apart):
    weights = rh.Variable(np.zeros(2), name="weights")
    kept = rh.Variable(np.zeros(2), name="kept")
    copies = rh.Variable(np.zeros(2), name="copies")
    updates = [weights.assign_add(np.ones(2)), copies.assign_add(np.ones(2))]
    one = rh.call(lambda it: int(it[0]) + 1, kept) if apart else 1
    train = rh.group(*updates, rh.train.get_or_create_global_step().assign_add(one))
    session, interrupted, landed = rh.Session(), 0, 0
    session.run(train)
    for calls in itertools.count(1):
        before = session.global_step
        if not is_interrupted_after(calls, lambda: session.run(train)):
            break
        interrupted += 1
        values = session.run({"weights": weights, "copies": copies})
        assert set(values["weights"]) == set(values["copies"]) == {session.global_step}
        landed += session.global_step > before
    assert interrupted > landed > 0


def is_interrupted_after(calls, run):
    """Call ``run``, with a KeyboardInterrupt at one of its calls; return whether it had as many.

    Python handles signals where a function of its own begins, and where one of C has ended.
    """
    left = calls

    def interrupt(frame, event, argument):
        nonlocal left
        left -= event in ("call", "c_return")
        if left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    try:
        sys.setprofile(interrupt)
        run()
        sys.setprofile(None)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("kind", [rh.Session, rh.MonitoredSession])
def test_a_ctrl_c_between_any_two_calls_of_a_run_locks_out_no_other_thread(train_op, kind):
    session = kind()
    session.run(train_op)
    for calls in itertools.count(1):
        is_interrupted = is_interrupted_after(calls, lambda: session.run(train_op))
        other = threading.Thread(target=session.run, args=[train_op], daemon=True)
        other.start()
        other.join(60)
        assert not other.is_alive(), calls
        if not is_interrupted:
            break


def test_tensors_of_torch_are_fed_to_placeholders_with_a_dtype():
    torch = pytest.importorskip("torch")
    with rh.Graph("torch").as_default():
        x = rh.placeholder("x", np.float32, [None])
        n = rh.placeholder("n", np.int64)
        with rh.Session() as session:
            assert session.run(x, {x: torch.ones(3)}).dtype == torch.float32
            assert session.run(x, {x: torch.ones(3, dtype=torch.float64)}).dtype == torch.float32
            assert session.run(n, {n: torch.tensor(3)}) == 3
            with pytest.raises(ValueError, match="shape"):
                session.run(x, {x: torch.ones(3, 1)})
            with pytest.raises(TypeError, match="n:0"):
                session.run(n, {n: torch.ones(3)})


def test_a_global_step_beyond_64_bits_is_refused(graph):
    step = rh.train.get_or_create_global_step()
    huge = step.assign(rh.call(lambda: np.uint64(2**63)))
    with rh.Session() as session:
        with pytest.raises(ValueError, match="global_step"):
            session.run(huge)
        assert session.global_step == 0


def test_a_ctrl_c_in_one_end_is_not_hidden_by_the_error_of_another(train_op):
    class Raises(rh.SessionRunHook):
        def __init__(self, error):
            self.error = error

        def end(self, session):
            raise self.error

    hooks = [Raises(ValueError("first")), Raises(KeyboardInterrupt())]
    with pytest.raises(KeyboardInterrupt) as caught:
        with rh.MonitoredSession(hooks=hooks) as session:
            session.run(train_op)
    assert any("first" in note for note in caught.value.__notes__)


def test_a_hook_that_could_not_join_keeps_its_name(train_op):
    class Hook(rh.SessionRunHook):
        fails = True

        def after_create_session(self, session, coord):
            if Hook.fails:
                Hook.fails = False
                raise KeyError("once")

        def before_run(self, run_context):
            raise ValueError("named")

    hook = Hook()
    with rh.MonitoredSession() as session:
        with pytest.raises(KeyError):
            session.run(train_op, hooks=[hook])
        with pytest.raises(ValueError, match="named") as caught:
            session.run(train_op, hooks=[hook])
    assert any(note.endswith("the hook Hook") for note in caught.value.__notes__)


def test_a_session_lost_while_a_hook_joins_is_recovered(train_op):
    class Hook(rh.SessionRunHook):
        lost = False

        def after_create_session(self, session, coord):
            if not Hook.lost:
                Hook.lost = True
                raise rh.errors.AbortedError("lost")

        def after_run(self, run_context, run_values):
            pass

    with rh.MonitoredSession(recovery=policy()) as session:
        session.run(train_op, hooks=[Hook()])
        assert session.recoveries == 1
        assert session.global_step == 1


def test_a_rewind_beside_runs_of_another_thread(graph):
    data = rh.inputs(lambda step: iter(range(10**9)), name="data")
    errors = []
    with rh.Session() as session:

        def run():
            try:
                for _ in range(2000):
                    session.run(data)
            except Exception as error:  # noqa: BLE001
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            session.rewind(data)
        thread.join()
    assert errors == []


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_narrow_integers_take_no_number_that_they_cannot_hold(graph, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    v = rh.Variable(np.array(1, getattr(ml_dtypes, name)), name="v")
    changes = {number: v.assign(rh.call(lambda number=number: number)) for number in (0.5, 100, 3)}
    with rh.Session() as session:
        for number in (0.5, 100):
            with pytest.raises(ValueError, match="'v'"):
                session.run(changes[number])
        assert int(session.run(changes[3])) == 3
