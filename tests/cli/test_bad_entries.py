"""One bad entry in a tree of runs is named; the rest is read. Its kinds are in ``test_damage``."""

import json

import pytest


@pytest.fixture
def bad(run_file, tmp_path):
    """A link to nothing in a run between sound ones."""
    for name in ("a", "b", "c"):
        run_file(name).add(1, loss=1.0)
    path = tmp_path / "b" / "events.out.tfevents.1.bad"
    path.symlink_to("/nowhere/at/all")
    return path


@pytest.mark.parametrize("command", [["show"], ["plot"], ["compare"], ["export", "--csv"]])
def test_the_rest_is_read(run, bad, tmp_path, command) -> None:
    ended = run(*command, tmp_path)
    assert ended.status == 0
    assert f"skipped {bad}" in ended.errors
    assert len(ended.errors.splitlines()) == 1


def test_it_is_listed_among_the_damages(run, bad, tmp_path) -> None:
    runs = json.loads(run("show", tmp_path, "--json").out)["runs"]
    assert [len(it["damages"]) for it in runs] == [0, 1, 0]
    checked = run("check", tmp_path)
    assert checked.status == 1
    assert "cannot be read" in checked.out
    assert "1 damaged" in checked.out
    reports = json.loads(run("check", tmp_path, "--json").out)
    assert [it["path"] for it in reports if not it["sound"]] == [str(bad)]


def test_it_is_followed(terminal, run_file, bad, tmp_path) -> None:
    followed = terminal("tail", tmp_path, columns=200)
    followed.wait_for("loss 1")
    run_file("c").add(2, loss=5.0)
    followed.wait_for("loss 5")
