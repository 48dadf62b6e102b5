"""Event files in stores: written, read, followed, as on a disk."""

import io
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from uuid import uuid4

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runhooks as rh
from runhooks import events
from runhooks.cli.app import app
from runhooks.events.writing import event_file
from runhooks.stores import open_store
from runhooks.tensorboard import EventAccumulator, SummaryWriter

LIMIT_SECS = 120


@pytest.fixture(autouse=True)
def no_writers():
    yield
    rh.summary.FileWriterCache.clear()


def columns(path):
    return {
        name: {tag: (it.steps.tolist(), it.values.tolist()) for tag, it in run.scalars.items()}
        for name, run in events.read(path).items()
    }


def contents(path):
    """All that is read of a run."""
    run = events.read(path).only
    points = {
        kind: {
            tag: [(it.step, repr(it.value)) for it in run.points(kind)[tag]]
            for tag in run.points(kind)
        }
        for kind in ("histogram", "text")
    }
    starts = [(log.step, log.value.status) for log in run.session_logs]
    return columns(path), points, starts, run.graph, run.damages


@pytest.fixture
def memory():
    """An empty place in a store of the simplest kind."""
    return f"memory://{uuid4()}/run"


def test_what_is_flushed_is_there_for_everyone(url):
    writer = rh.summary.FileWriter(url)
    assert events.read(url).only.scalars == {}  # it is known at once that it can be written
    for step in range(3):
        writer.scalars({"loss": step / 2, "rate": 0.25}, step)
        writer.flush()
        assert columns(url)["."] == {
            "loss": (list(range(step + 1)), [it / 2 for it in range(step + 1)]),
            "rate": (list(range(step + 1)), [0.25] * (step + 1)),
        }
    writer.close()
    assert len(events.read(url).only.files) == 1


def test_what_is_added_is_there_after_flush_secs(memory):
    def is_there():
        with_points = events.read(memory).only.scalars
        return "loss" in with_points and len(with_points["loss"].steps) == 2

    writer = rh.summary.FileWriter(memory, flush_secs=0.5)
    writer.scalar("loss", 0.5, 1)
    joined = rh.summary.FileWriter(f"{memory}/", flush_secs=600)
    joined.scalar("loss", 0.5, 2)
    late = threading.Event()
    threading.Timer(LIMIT_SECS, late.set).start()
    while not is_there():
        assert not late.is_set()
    writer.close()
    joined.close()


STEPS = st.integers(0, 50)
ACTIONS = st.one_of(
    st.tuples(st.just("scalar"), st.sampled_from(["a", "b"]), STEPS),
    st.tuples(st.just("histogram"), st.just("h"), STEPS),
    st.tuples(st.just("text"), st.just("t"), STEPS),
    st.tuples(st.just("start"), st.none(), STEPS),
    st.tuples(st.just("flush"), st.none(), st.none()),
    st.tuples(st.just("new process"), st.none(), st.none()),
)


@settings(max_examples=40, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=40), segment_bytes=st.integers(30, 600))
def test_segments_are_read_as_one_file(actions, segment_bytes, tmp_path_factory):
    places = [tmp_path_factory.mktemp("run"), f"memory://{uuid4()}/run"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_file, "SEGMENT_BYTES", segment_bytes)
        for place in places:
            writer = rh.summary.FileWriter(place)
            for number, (action, tag, step) in enumerate(actions):
                if action == "scalar":
                    writer.scalar(tag, number / 8, step)
                elif action == "histogram":
                    writer.histogram(tag, np.arange(number), step)
                elif action == "text":
                    writer.text(tag, str(number), step)
                elif action == "start":
                    log = rh.summary.SessionLog(rh.summary.SessionStatus.START)
                    writer.add_session_log(log, step)
                elif action == "flush":
                    writer.flush()
                else:
                    writer.close()
                    writer.reopen()
            writer.close()
    assert contents(places[1]) == contents(places[0])


def test_only_what_is_new_is_read(bucket, proxy, monkeypatch):
    monkeypatch.setattr(event_file, "SEGMENT_BYTES", 3000)
    url = f"{bucket}/runs/a"
    writer = rh.summary.FileWriter(url)
    for step in range(100):
        writer.scalar("loss", step, step)
        if step % 10 == 0:
            writer.flush()
    writer.flush()
    runs = events.read(f"{bucket}/runs")
    assert len(runs["a"].files) > 1
    newest = runs["a"].files[-1].suffix[1:]
    writer.scalar("loss", 100.0, 100)
    writer.flush()
    proxy.requests.clear()
    assert runs.update() == 1
    asked = [
        (method, path.partition("?")[0].rpartition(".")[2]) for method, path, _ in proxy.requests
    ]
    assert asked == [("GET", f"/{bucket[5:]}"), ("GET", newest), ("GET", newest)]
    proxy.requests.clear()
    assert runs.update() == 0
    assert len(proxy.requests) == 1
    np.testing.assert_array_equal(runs["a"].scalars["loss"].steps, range(101))
    writer.close()


def test_metrics_of_evaluations_are_listed_once(bucket, proxy):
    with rh.summary.FileWriter(f"{bucket}/eval") as writer:
        writer.scalar("loss", 0.5, 10)
    proxy.requests.clear()
    assert rh.read_eval_metrics(f"{bucket}/eval") == {10: {"loss": 0.5}}
    assert len(proxy.requests) == 2
    assert rh.read_eval_metrics(f"{bucket}/none") == {}


def test_a_stream_follows_the_segments(memory, monkeypatch):
    monkeypatch.setattr(event_file, "SEGMENT_BYTES", 100)
    writer = rh.summary.FileWriter(memory)
    writer.scalar("loss", 0.0, 0)
    writer.flush()
    followed = events.stream(memory, follow=True)
    for step in range(6):
        assert next(followed).step == step
        writer.scalar("loss", step + 1, step + 1)
        writer.flush()
    writer.close()
    assert [point.step for point in events.stream(memory)] == list(range(7))


def test_other_kinds_are_read_from_where_they_are(memory):
    writer = rh.summary.FileWriter(memory)
    for step in range(30):
        writer.histogram("weights", np.arange(10.0) * step, step)
        writer.text("log", f"step {step}", step)
    writer.close()
    run = events.read(memory).only
    assert [it.value.max for it in run.histograms["weights"]] == [9.0 * step for step in range(30)]
    assert run.texts["log"][7].value == "step 7"
    assert [report.sound for report in events.check(memory)] == [True]
    (file,) = run.files
    assert columns(str(file)) == columns(memory)


def test_many_runs_are_found_by_one_listing(bucket, proxy):
    for name in ("a", "a/b", "c"):
        with rh.summary.FileWriter(f"{bucket}/runs/{name}") as writer:
            writer.scalar("loss", 1.0, 1)
    proxy.requests.clear()
    assert columns(f"{bucket}/runs") == {name: {"loss": ([1], [1.0])} for name in ("a", "a/b", "c")}
    assert len(proxy.requests) == 4
    assert list(events.read(bucket)) == ["runs/a", "runs/a/b", "runs/c"]


@pytest.mark.parametrize("read", [events.read, events.check, events.stream])
def test_where_nothing_is(memory, read):
    with pytest.raises(FileNotFoundError, match=f"{memory}/none"):
        read(f"{memory}/none")


# Another test may have started threads of JAX, which the child does not touch.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_writer_in_another_process_has_segments_of_its_own(bucket):
    url = f"{bucket}/run"
    writer = rh.summary.FileWriter(url)
    writer.scalar("loss", 0.0, 0)
    copy = pickle.loads(pickle.dumps(writer))
    copy.scalar("loss", 1.0, 1)
    copy.close()

    def work():
        writer.scalar("loss", 2.0, 2)
        writer.flush()

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(LIMIT_SECS)
    assert child.exitcode == 0
    writer.close()
    assert sorted(columns(url)["."]["loss"][0]) == [0, 1, 2]
    assert len(events.read(url).only.files) == 2


def test_a_summary_writer_of_torch_writes_everything_there(memory):
    with SummaryWriter(f"{memory}/a", purge_step=0) as writer:
        writer.add_scalar("loss", 0.5, 1)
        writer.add_scalars("rates", {"up": 1.0, "down": 2.0}, 1)
        writer.add_hparams({"lr": 0.1}, {"accuracy": 0.9}, run_name="trial")
        writer.add_embedding(np.eye(3), metadata=["x", "y", "z"], global_step=2, tag="points")
        writer.add_embedding(np.eye(2), tag="others")
        assert writer.get_logdir() == f"{memory}/a"
    assert list(events.read(memory)) == ["a", "a/rates_down", "a/rates_up", "a/trial"]
    assert events.read(f"{memory}/a")["trial"].hparams == {"lr": 0.1}
    config = open_store(f"{memory}/a").read("projector_config.pbtxt").decode()
    assert config.count("embeddings {") == 2
    tensors = open_store(f"{memory}/a").read("00002/points/tensors.tsv")
    assert tensors == b"1.0\t0.0\t0.0\n0.0\t1.0\t0.0\n0.0\t0.0\t1.0\n"


def test_the_reader_of_tensorboard(memory):
    with rh.summary.FileWriter(f"{memory}/a") as writer:
        for step in range(3):
            writer.scalar("loss", step / 2, step)
    accumulator = EventAccumulator(f"{memory}/a").Reload()
    assert [it.value for it in accumulator.Scalars("loss")] == [0.0, 0.5, 1.0]


def test_hooks_write_there(memory, graph, model):
    evaluation = rh.EvaluationHook(
        {"loss": model.loss}, every_n_steps=2, output_dir=f"{memory}/eval"
    )
    hooks = [
        rh.StopAtStepHook(last_step=6),
        rh.SummarySaverHook(
            save_steps=1, output_dir=memory, summary_op=rh.summary.scalar("loss", model.loss)
        ),
        rh.ProfilerHook(save_steps=3, output_dir=f"{memory}/profiles"),
        evaluation,
        rh.stop_if_no_decrease_hook(evaluation.metric("loss"), max_steps_without_decrease=100),
    ]
    with rh.MonitoredTrainingSession(
        summary_dir=memory, hooks=hooks, log_step_count_steps=2
    ) as session:
        while not session.should_stop():
            session.run(model.train_op)
    runs = events.read(memory)
    assert set(runs["."].scalars["loss"].steps.tolist()) == {1, 2, 3, 4, 5, 6}
    assert "global_step/sec" in runs["."].scalars
    assert runs["eval"].scalars["loss"].steps.tolist() == [2, 4, 6]
    assert rh.read_eval_metrics(f"{memory}/eval")[6] == {"loss": 12.0}
    profiles = [it.key for it in open_store(f"{memory}/profiles").objects()]
    assert profiles == ["profile-3.pstats", "profile-6.pstats"]


def command(*words):
    from typer.testing import CliRunner

    return CliRunner().invoke(app, [*map(str, words)])


def test_the_command_reads_them(memory, tmp_path):
    for name in ("first", "second"):
        with rh.summary.FileWriter(f"{memory}/{name}") as writer:
            for step in range(5):
                writer.scalar("loss", step / 2, step)
    for words in (["show"], ["compare"], ["check"], ["plot", "--tag", "loss"]):
        result = command(*words, memory)
        assert result.exit_code == 0, result.output
        assert "first" in result.output
    table = tmp_path / "table.csv"
    assert command("export", memory, "-o", table).exit_code == 0
    assert len(table.read_text().splitlines()) == 11
    missing = command("show", f"{memory}/secon")
    assert missing.exit_code == 2
    said = f"there is no file or directory {memory}/secon"
    assert said in missing.output


PROGRAM = """
    import sys
    import runhooks as rh

    writer = rh.summary.FileWriter(sys.argv[1])
    for step in range(10**9):
        writer.scalar("loss", step / 2, step)
        if step % 100 == 99:
            writer.flush()
            print(step, flush=True)
        if step == int(sys.argv[2]):
            sys.exit()
"""


def start(url, last_step):
    words = [sys.executable, "-c", textwrap.dedent(PROGRAM), url, str(last_step)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ)


@pytest.mark.slow
def test_what_was_flushed_outlives_a_kill(bucket):
    url = f"{bucket}/run"
    with start(url, -1) as process:
        flushed = [int(process.stdout.readline()) for _ in range(5)]
        process.kill()
        flushed += map(int, process.stdout)
    steps = columns(url)["."]["loss"][0]
    assert steps == list(range(len(steps)))
    assert len(steps) > flushed[-1]
    assert events.read(url).damages == []
    with start(url, 150) as process:  # it goes on in segments that come after them
        process.communicate(timeout=LIMIT_SECS)
    assert columns(url)["."]["loss"][0] == steps + list(range(151))


@pytest.mark.slow
def test_a_process_that_ends_stores_what_waits(bucket):
    with start(f"{bucket}/run", 150) as process:
        process.communicate(timeout=LIMIT_SECS)
    assert columns(f"{bucket}/run")["."]["loss"][0] == list(range(151))


def test_spellings_of_a_url_are_one_place(memory):
    spellings = [memory, f"{memory}/", memory.replace("/run", "//run//")]
    for step, spelling in enumerate(spellings):
        rh.summary.FileWriterCache.get(spelling).scalar("loss", 0.5, step)
    rh.summary.FileWriterCache.clear()
    for spelling in spellings:
        run = events.read(spelling).only
        assert run.scalars["loss"].steps.tolist() == [0, 1, 2]
        assert len(run.files) == 1


def test_the_command_lists_checkpoints(memory, graph, model):
    hooks = [rh.StopAtStepHook(last_step=3)]
    with rh.MonitoredTrainingSession(checkpoint_dir=memory, hooks=hooks) as session:
        while not session.should_stop():
            session.run(model.train_op)
    listed = command("checkpoints", memory)
    assert listed.exit_code == 0, listed.output
    assert "model.ckpt-0" in listed.output
    alone = command("checkpoints", f"{memory}/model.ckpt-3", "--json")
    assert json.loads(alone.output)[0]["step"] == 3


def test_tables_are_written_to_stores(memory, tmp_path):
    with rh.summary.FileWriter(memory) as writer:
        for step in range(5):
            writer.scalar("loss", step / 2, step)
    runs = events.read(memory)
    for name, write in {"a.csv": runs.to_csv, "a.jsonl": runs.to_json_lines}.items():
        write(f"{memory}/tables/{name}")
        write(tmp_path / name)
        assert open_store(memory).read(f"tables/{name}") == (tmp_path / name).read_bytes()
    runs.to_parquet(f"{memory}/tables/a.parquet")
    content = io.BytesIO(open_store(memory).read("tables/a.parquet"))
    assert pyarrow.parquet.read_table(content).equals(runs.to_arrow())
