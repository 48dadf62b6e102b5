"""``MemoryHook`` writes what devices say of their memory, and nothing where they do not."""

import logging

import pytest

import runhooks as rh
from runhooks.testing import read_events

pytestmark = pytest.mark.every_engine


def test_writes_what_the_devices_say(train, graph, monkeypatch, tmp_path):
    said = {"cuda:0/allocated_bytes": 0, "cuda:1/allocated_bytes": 7}

    def memory():
        said["cuda:0/allocated_bytes"] += 10
        return said

    monkeypatch.setattr(graph.engine, "memory", memory)
    train(rh.MemoryHook(3, tmp_path), steps=7)
    written = [(event.step, event.tag, event.value) for event in read_events(tmp_path)]
    assert written == [
        (3, "memory/cuda:0/allocated_bytes", 20.0),  # the first time was when the session started
        (3, "memory/cuda:1/allocated_bytes", 7.0),
        (6, "memory/cuda:0/allocated_bytes", 30.0),
        (6, "memory/cuda:1/allocated_bytes", 7.0),
    ]


def test_where_no_device_tells_it_says_so_and_sleeps(train, graph, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(graph.engine, "memory", dict)
    caplog.set_level(logging.INFO, "runhooks")
    hook = rh.MemoryHook(1, tmp_path)
    train(hook, steps=3)
    assert sum("MemoryHook writes nothing" in message for message in caplog.messages) == 1
    assert read_events(tmp_path) == []
    assert hook.next_due() == rh.Due()


def test_it_needs_a_place_to_write_to():
    with pytest.raises(ValueError, match="output_dir or summary_writer must be given, got neither"):
        rh.MemoryHook(5)


def test_gpu_in_use_is_in_it():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    kept = torch.ones(1024, device="cuda")
    memory = rh.Graph("torch").engine.memory()
    assert memory["cuda:0/allocated_bytes"] >= kept.nbytes
