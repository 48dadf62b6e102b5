"""Passwords and signatures in URLs: a store gets them, and nobody else sees them."""

from __future__ import annotations

import functools
import http.server
import logging
import pickle
import sys
import threading
import traceback
from uuid import uuid4

import fsspec
import numpy as np
import pytest

import runhooks as rh
import runhooks.tensorboard
from runhooks import events
from runhooks.cli import main
from runhooks.stores import RetryPolicy, default_policy, open_store, set_retry_policy
from runhooks.stores.path import StorePath
from runhooks.stores.urls import hidden, revealed

SECRET = "S3CRET"
WRONG = "wrong" + "DEF"


@pytest.fixture
def url():
    """A URL as fsspec takes a user and a password in it; its memory makes no use of them."""
    return f"memory://{uuid4()}:'p/{SECRET} t\\@w#@host/run"


@pytest.fixture(autouse=True)
def no_retries():
    before = default_policy()
    set_retry_policy(RetryPolicy(secs=0))
    yield
    set_retry_policy(before)


@pytest.fixture(autouse=True)
def no_secret_is_logged(caplog):
    caplog.set_level(logging.DEBUG)
    yield
    assert SECRET not in "".join(our_lines(caplog))


def our_lines(caplog):
    return [it.getMessage() for it in caplog.records if it.name.startswith("runhooks")]


def train(directory, last_step=4, width=2, **arguments):
    graph = rh.graph(lambda a: (a + 1, {"loss": a.sum()}), a=np.zeros(width))
    with graph.as_default():
        rh.summary.scalar("loss")
        with rh.MonitoredTrainingSession(
            checkpoint_dir=directory,
            hooks=[rh.StopAtStepHook(last_step=last_step), rh.LoggingTensorHook(["loss"], 1)],
            save_checkpoint_steps=2,
            save_summaries_steps=1,
            **arguments,
        ) as session:
            while not session.should_stop():
                session.run("train_op")
            return session.global_step


def stored():
    return {key: it.getvalue() for key, it in fsspec.filesystem("memory").store.items()}


def assert_hidden(error):
    """Nothing of an error that may be printed has the secret in it."""
    assert SECRET not in "".join(traceback.format_exception(error))
    hidden_cause = error
    while hidden_cause is not None:  # some tools show what "from None" has suppressed
        assert SECRET not in f"{hidden_cause!r} {hidden_cause}"
        hidden_cause = hidden_cause.__context__
    assert SECRET not in str(getattr(error, "filename", ""))
    assert SECRET not in str(getattr(error, "path", ""))


def test_nothing_that_a_training_logs_or_writes_has_the_password(url, caplog):
    assert train(url) == 4
    assert train(url, last_step=6) == 6
    assert any(
        it.startswith("saved checkpoint memory://***@host/run/model") for it in our_lines(caplog)
    )
    assert not [key for key, content in stored().items() if SECRET.encode() in content]


def test_what_is_returned_can_be_used_again(url):
    train(url)
    latest = rh.latest_checkpoint(url)
    assert f"{latest}" == "memory://***@host/run/model.ckpt-4"
    assert rh.load(latest)["a"].tolist() == [4, 4]
    writer = rh.summary.FileWriter(url)
    writer.scalar("more", 1.0, 1)
    writer.close()
    assert train(writer.get_logdir(), last_step=5) == 5
    (run,) = events.read(url).values()
    assert run.scalars["more"].steps.tolist() == [1]
    assert SECRET not in repr(run)
    store = open_store(url)
    assert {it.key for it in store.objects() if it.key.startswith("model.ckpt-5")}
    assert SECRET not in repr(store)
    rh.export(url, f"{url}/a.safetensors")
    assert rh.load(f"{url}/a.safetensors")["a"].tolist() == [5, 5]


@pytest.mark.parametrize("place", ["{}:{}@host/run", "host/run?key={}{}"])
def test_each_secret_opens_its_own_place(place):
    name = uuid4()
    one, two = (f"memory://{place.format(name, it)}" for it in "12")
    assert train(one, last_step=2) == 2
    assert train(two, last_step=6) == 6
    assert train(one, last_step=4) == 4
    assert [rh.load(it)["a"].tolist() for it in (one, two)] == [[4, 4], [6, 6]]
    assert hidden(one) != hidden(two)
    assert str.__str__(hidden(one)) == str.__str__(hidden(two))


def test_a_chain_of_urls_is_no_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"write 'ftp://\*\*\*@host/run'") as caught:
        train("simplecache::ftp://user:s3cret@host/run", last_step=1)
    assert "s3cret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shown", ["memory://***@host/run", "https://host/a?***", "memory://***"])
def test_what_is_shown_of_a_url_is_refused_with_a_reason(shown):
    with pytest.raises(ValueError, match="give the URL as it was, with its password or query"):
        rh.load(shown)


def test_a_url_is_pickled_as_it_is_shown(url):
    copied = pickle.loads(pickle.dumps(hidden(url)))
    assert copied == "memory://***@host/run"
    assert type(copied) is str


def misfit(url):
    train(url)
    train(url, width=3)


def damaged(url):
    train(url)
    for it in open_store(url).objects():
        if it.key.endswith("checkpoint.safetensors"):
            open_store(url).put(it.key, b"{}")
    train(url)


def twice(url):
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        with rh.MonitoredTrainingSession(checkpoint_dir=url):
            train(url)


def taken_over(url):
    graph = rh.graph(lambda a: (a + 1, {}), a=np.zeros(2))
    with graph.as_default():
        with rh.MonitoredTrainingSession(checkpoint_dir=url, save_checkpoint_steps=1) as session:
            open_store(url).put(".chief/999999999999-0123456789abcdef", b"process 1 on host")
            session.run("train_op")


def lost_events(url):
    writer = rh.summary.FileWriter(url)
    writer.add_summary(object(), 1)
    writer.close()


def closed_writer(url):
    writer = rh.summary.FileWriter(url)
    writer.close()
    writer.scalar("a", 1.0, 1)


def waits_for_a_chief(url):
    with rh.graph(lambda a: a + 1, a=np.zeros(2)).as_default():
        rh.WorkerSessionCreator(checkpoint_dir=url, max_wait_secs=0).create_session()


@pytest.mark.parametrize(
    "fail",
    [
        *(misfit, damaged, twice, taken_over, lost_events, closed_writer),
        rh.load,
        lambda url: rh.best_checkpoint(url, "loss"),
        lambda url: (train(url), rh.best_checkpoint(url, "loss")),
        lambda url: (train(url), rh.load(url, step=3)),
        lambda url: rh.load(f"{url}/a.safetensors"),
        lambda url: rh.load(url.replace("memory:", "nobody:")),
        lambda url: rh.load(url.replace("://", ":/")),
        lambda url: rh.load(url.replace("memory://", "sftp:/")),
        lambda url: rh.load(url.replace("memory:", "ftp:")),
        lambda url: rh.load(url.replace("memory:", "s3:")),
        lambda url: rh.load(url.replace(SECRET, f"{SECRET}?")),
        lambda url: rh.load(url.replace("memory:", "ftp:").replace(SECRET, f"{SECRET}?")),
        lambda url: rh.load(f"{url}/../a"),
        lambda url: events.read(f"{url}/none"),
        lambda url: runhooks.tensorboard.EventAccumulator(url).Reload().Scalars("none"),
        lambda url: rh.summary.JsonLinesWriter(url),
        lambda url: train(url, scaffold=rh.Scaffold(init_from=rh.InitFrom(f"{url}/none"))),
        lambda url: rh.ChiefSessionCreator(
            checkpoint_dir=url, checkpoint_filename_with_path=f"{url}/a"
        ),
        lambda url: open_store(url).read("none"),
        waits_for_a_chief,
    ],
    ids=lambda it: getattr(it, "__name__", None),
)
def test_no_error_shows_the_password(url, fail):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of many kinds
        fail(url)
    assert_hidden(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        *("show", "check", "checkpoints", "plot"),
        ("compare", "--metric", "none"),
        ("export", "-o", "x.nothing"),
        ("tail", "--lines", "3"),
        "doctor",
    ],
    ids=str,
)
@pytest.mark.parametrize("there", [True, False], ids=["there", "missing"])
def test_no_command_shows_the_password(url, command, there, monkeypatch, capsys):
    if there:
        train(url)
    name, *options = (command,) if isinstance(command, str) else command
    monkeypatch.setattr(sys, "argv", ["runhooks", name, url, *options])
    with pytest.raises(SystemExit) as caught:
        main()
    assert_hidden(caught.value)
    shown = "".join(capsys.readouterr())
    assert shown.strip() or caught.value.code
    assert SECRET not in shown


class _Protected(http.server.SimpleHTTPRequestHandler):
    """Serves files to those who know the signature."""

    def send_head(self):
        if "sig=abcDEF" in self.path:
            return super().send_head()
        self.send_error(403)
        return None

    def log_message(self, *arguments):
        pass


def test_a_signature_reaches_the_server_and_nobody_else(tmp_path, caplog):
    train(tmp_path)
    (file,) = tmp_path.glob("events*")
    handler = functools.partial(_Protected, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        place = f"http://localhost:{server.server_port}/{file.name}?se=2030&sig=abcDEF"
        try:
            path = StorePath(place)
            assert StorePath(str(path)).read_bytes() == path.read_bytes() == file.read_bytes()
            wrong = StorePath(place.replace("abcDEF", WRONG))
            with pytest.raises(OSError, match="403|Forbidden") as caught:
                wrong.read_bytes()
        finally:
            server.shutdown()
            thread.join()
    assert repr(path).endswith("?***')")
    assert "abcDEF" not in "".join([*our_lines(caplog), repr(path)])
    assert WRONG not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://user:pw@host/run", "ftp://***@host/run"),
        ("ftp://token@host/run", "ftp://***@host/run"),
        ("ftp://user:p@w:d@host:21/run", "ftp://***@host:21/run"),
        ("ftp://user:p/w@host/run", "ftp://***@host/run"),
        ("ftp://user:'p w#\n@host/run", "ftp://***@host/run"),
        ("ftp://user:p?w@host/run", "ftp://***"),
        ("ftp://u:pw@host/a?token=b", "ftp://***@host/a?***"),
        ("az://box/run?se=2030&sig=ab/cd", "az://box/run?***"),
        ("S3://key:sec/ret@bucket/run", "S3://***@bucket/run"),
        *((it, it) for it in ("s3://bucket/run", "s3://bucket/a@b", "az://container@account/run")),
        *((it, it) for it in ("http://localhost:9000/a", "runs/a:b@c?sig=d", "memory://run")),
    ],
)
def test_what_stands_before_the_last_at_and_behind_a_question_mark_is_hidden(url, shown):
    assert f"{hidden(url)}" == shown
    assert revealed(hidden(url)) == url
