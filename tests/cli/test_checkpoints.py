import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import Snapshot, write_checkpoint
from runhooks.ranks import LocalGroup, entered
from tests.checkpoint.sealing import forge


@pytest.fixture
def saved(tmp_path):
    for step in (10, 20, 30):
        arrays = {"dense/kernel": np.zeros((3, step), np.float32), "global_step": np.int64(step)}
        states = {"StopAtStepHook": {"last_step": 100}}
        path = tmp_path / f"model.ckpt-{step}"
        write_checkpoint(path, Snapshot(arrays, states), global_step=step)
    return tmp_path


def test_a_row_a_checkpoint(run, saved) -> None:
    listed = run("checkpoints", saved)
    assert listed.status == 0
    titles, *rows = (line.split() for line in listed.out.splitlines())
    assert titles == ["checkpoint", "step", "saved", "size", "arrays", "values"]
    assert [(row[0], row[1], row[-2]) for row in rows[:2]] == [
        ("model.ckpt-10", "10", "31"), ("model.ckpt-20", "20", "61")
    ]  # fmt: skip
    assert rows[2][-2:] == ["sound", "latest"]


def test_a_link_to_the_checkpoint_itself_is_not_followed(run, saved) -> None:
    def size():
        return json.loads(run("checkpoints", saved, "--json").out)[0]["size"]

    before = size()
    (saved / "model.ckpt-10" / "loop").symlink_to(".")
    assert before <= size() < before + 100


def test_what_is_in_one(run, saved) -> None:
    lines = run("checkpoints", saved / "model.ckpt-20").out.splitlines()
    assert lines[1].split()[-1] == "sound"
    assert [line.split() for line in lines[3:6]] == [
        ["array", "dtype", "shape", "size"],
        ["dense/kernel", "float32", "3x20", "240", "B"],
        ["global_step", "int64", "scalar", "8", "B"],
    ]
    assert lines[-1] == "states of StopAtStepHook"


def test_one_that_ranks_have_saved_together(run, tmp_path) -> None:
    def save(group):
        with entered(group):
            graph = rh.Graph(engine="python")
            with graph.as_default():
                rh.Variable(np.full(3, float(group.rank)), name="w")
                rh.train.get_or_create_global_step()
            rh.Saver().save(rh.Session(graph), tmp_path / "model.ckpt", 0)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(save, LocalGroup.together(2)))
    lines = run("checkpoints", tmp_path / "model.ckpt-0").out.splitlines()
    assert lines[1].split()[-1] == "sound"
    assert lines[-1] == "saved by 2 ranks"
    (found,) = json.loads(run("checkpoints", tmp_path, "--json").out)
    assert (found["ranks"], found["arrays"]["w"]["shape"]) == (2, [3])
    (file,) = (tmp_path / "model.ckpt-0").glob("*-1.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert "-1.safetensors: its checksum" in run("checkpoints", tmp_path).out


def test_damaged_ones_are_found(run, saved) -> None:
    path = saved / "model.ckpt-30" / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.truncate(saved / "model.ckpt-10" / "checkpoint.safetensors", 9)
    listed = run("checkpoints", saved)
    assert listed.status == 1
    by_name = {line.split()[0]: line for line in listed.out.splitlines()}
    assert by_name["model.ckpt-20"].split()[-2:] == ["sound", "latest"]
    assert "checkpoint.safetensors: it has 9 bytes" in by_name["model.ckpt-10:"]
    assert "checkpoint.safetensors: its checksum" in by_name["model.ckpt-30:"]
    found = {it["step"]: it for it in json.loads(run("checkpoints", saved, "--json").out)}
    assert {step: it["sound"] for step, it in found.items()} == {10: False, 20: True, 30: False}
    kernel = {"dtype": "float32", "shape": [3, 20], "size": 240}
    assert found[20]["arrays"]["dense/kernel"] == kernel


def test_a_checkpoint_of_a_later_version_is_named(run, saved) -> None:
    forge(saved / "model.ckpt-20", lambda it: it["about"].update(format=99))
    listed = run("checkpoints", saved)
    assert listed.status == 2
    assert "99" in listed.errors


def test_a_directory_without_any(run, tmp_path) -> None:
    listed = run("checkpoints", tmp_path)
    assert listed.status == 2
    assert f"no checkpoint in {tmp_path}" in listed.errors


@pytest.mark.parametrize("target", [None, "/dev/zero", "../outside"])
def test_what_is_not_a_file_of_a_checkpoint_is_damage(run, saved, target) -> None:
    path = saved / "model.ckpt-30" / "checkpoint.safetensors"
    path.rename(saved / "outside")
    os.mkfifo(path) if target is None else path.symlink_to(target)
    for directory in (saved, saved / "model.ckpt-30"):
        listed = run("checkpoints", directory)
        assert listed.status == 1
        assert "model.ckpt-30: checkpoint.safetensors" in listed.out
