"""Files for other programs, read by these programs."""

import re
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import runhooks as rh
from runhooks.checkpoint import Snapshot, write_checkpoint
from runhooks.errors import DataLossError, NotFoundError

ARRAYS = {
    "state/params/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "state/params/bias": np.ones(3, np.float16),
    "state/flag": np.array(True),
    "state/empty": np.zeros((0, 3), np.int8),
    "global_step": np.array(7),
}


@pytest.fixture
def run(tmp_path):
    """A directory with one checkpoint."""
    save(tmp_path / "run" / "model.ckpt-7", ARRAYS)
    return tmp_path / "run"


def save(path, arrays):
    write_checkpoint(path, Snapshot(arrays, {}), global_step=7)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_safetensors(run, tmp_path):
    path = tmp_path / "model.safetensors"
    rh.export(run, path)
    assert_same(safetensors.numpy.load_file(path), ARRAYS)
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt"}  # which transformers asks for


def test_a_link_stays_and_what_it_leads_to_is_replaced(run, tmp_path):
    (tmp_path / "old.safetensors").write_bytes(b"old")
    (tmp_path / "new.safetensors").symlink_to("old.safetensors")
    rh.export(run, str(tmp_path / "new.safetensors"))
    assert (tmp_path / "new.safetensors").is_symlink()
    assert_same(safetensors.numpy.load_file(tmp_path / "old.safetensors"), ARRAYS)


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ("state/params", {"kernel", "bias"}),
        (["state/params/*"], {"state/params/kernel", "state/params/bias"}),
        ("state/params/kernel", {"kernel"}),
    ],
)
def test_names_are_those_of_load(only, names, run, tmp_path):
    rh.export(run, tmp_path / "a.safetensors", only, step=7)
    assert safetensors.numpy.load_file(tmp_path / "a.safetensors").keys() == names


def test_names_that_would_be_one_in_the_file(tmp_path):
    save(tmp_path / "ckpt", {"s/a": np.zeros(1), "s/a.a": np.ones(1)})
    path = tmp_path / "a.safetensors"
    with pytest.raises(ValueError, match=r"'s/a' and 's/a\.a' .*: give \['s/a'\]"):
        rh.export(tmp_path / "ckpt", path, "s/a")
    rh.export(tmp_path / "ckpt", path, ["s/a"])
    assert safetensors.numpy.load_file(path).keys() == {"s/a", "s/a.a"}


@pytest.mark.parametrize("name", ["__metadata__", "\ud800"])
def test_names_that_the_format_cannot_hold(name, tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"a": {name: torch.ones(2), "b": torch.zeros(2)}}, tmp_path / "a.pt")
    path = tmp_path / "a.safetensors"
    with pytest.raises(ValueError, match=re.escape(f"cannot hold an array named {name!r}")):
        rh.export(tmp_path / "a.pt", path, "a")
    assert not path.exists()
    rh.export(tmp_path / "a.pt", path, "a/b")
    assert safetensors.numpy.load_file(path).keys() == {"b"}


def test_another_file_becomes_safetensors(tmp_path):
    np.savez(tmp_path / "a.npz", **ARRAYS)
    rh.export(tmp_path / "a.npz", tmp_path / "a.safetensors")
    assert_same(safetensors.numpy.load_file(tmp_path / "a.safetensors"), ARRAYS)


def dtypes():
    names = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4")
    return {name: np.arange(4).astype(getattr(ml_dtypes, name)) for name in names} | {
        "complex64": np.array([1j], np.complex64),
        "complex128": np.array([1j]),
        "datetime64": np.array(["2020-01-01"], "M8[s]"),
    }


@pytest.mark.parametrize("name", dtypes())
def test_dtypes_come_back_or_are_refused(name, tmp_path):
    array = dtypes()[name]
    save(tmp_path / "ckpt", {"group/x": array})
    path = tmp_path / "a.safetensors"
    if name in {"int4", "complex128", "datetime64"}:
        with pytest.raises(TypeError, match=re.escape(f"'group/x' is {array.dtype}, ")):
            rh.export(tmp_path / "ckpt", path)
        assert {it.name for it in tmp_path.iterdir()} == {"ckpt"}
    else:
        rh.export(tmp_path / "ckpt", path)
        found = rh.load(path)["group"]["x"]
        assert found.dtype == array.dtype
        assert found.tobytes() == array.tobytes()


def test_torch_reads_the_dtypes_that_it_has(tmp_path):
    torch = pytest.importorskip("torch")
    import safetensors.torch

    arrays = {name: it for name, it in dtypes().items() if name.startswith(("bfloat", "float8"))}
    save(tmp_path / "ckpt", arrays)
    rh.export(tmp_path / "ckpt", tmp_path / "a.safetensors")
    found = safetensors.torch.load_file(tmp_path / "a.safetensors")
    for name in arrays:
        assert found[name].dtype == getattr(torch, name)
        assert found[name].float().tolist() == [0, 1, 2, 3]


def test_a_file_that_is_there_is_replaced_or_left_as_it_is(run, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_text("old")
    file = run / "model.ckpt-7" / "checkpoint.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    with pytest.raises(DataLossError):
        rh.export(run / "model.ckpt-7", path)
    assert path.read_text() == "old"
    assert {it.name for it in tmp_path.iterdir()} == {"run", "model.safetensors"}
    file.write_bytes(content)
    rh.export(run, path)
    assert rh.load(path, "global_step") == 7


def test_what_is_wrong_is_said_before_anything_is_written(run, tmp_path):
    for source, target, only, error, message in (
        (run, "model.onnx", None, ValueError, r"\.safetensors, got.*'\.onnx'"),
        (run, "model.safetensors", "stat", ValueError, "nothing named 'stat'"),
        (tmp_path / "no", "model.safetensors", None, NotFoundError, "no checkpoint"),
        (run, None, None, TypeError, "path must be given"),
    ):
        path = None if target is None else tmp_path / target
        with pytest.raises(error, match=message):
            rh.export(source, path, only)
    assert {it.name for it in tmp_path.iterdir()} == {"run"}


def test_one_array_at_a_time_is_in_memory(tmp_path):
    save(tmp_path / "ckpt", {f"w{n}": np.full(1 << 18, n, np.float32) for n in range(32)})
    rh.export(tmp_path / "ckpt", tmp_path / "first.safetensors", "w0")
    tracemalloc.start()
    rh.export(tmp_path / "ckpt", tmp_path / "all.safetensors")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20  # of 32 MiB
    assert rh.load(tmp_path / "all.safetensors", "w31")[-1] == 31
