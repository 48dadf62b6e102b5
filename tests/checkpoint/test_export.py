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
    (tmp_path / "old.npz").write_bytes(b"old")
    (tmp_path / "model.npz").symlink_to("old.npz")
    rh.export(run, tmp_path / "model.npz")
    assert (tmp_path / "model.npz").is_symlink()
    with np.load(tmp_path / "old.npz") as found:
        assert_same(dict(found), ARRAYS)


def test_npz(run, tmp_path):
    path = tmp_path / "model.npz"
    rh.export(run, str(path))
    with np.load(path, allow_pickle=False) as found:
        assert_same(dict(found), ARRAYS)


def test_pt(run, tmp_path):
    torch = pytest.importorskip("torch")
    rh.export(run, tmp_path / "model.pt", "state")
    found = torch.load(tmp_path / "model.pt", weights_only=True)
    assert found.keys() == {"params", "flag", "empty"}
    assert_same(
        {name: it.numpy() for name, it in found["params"].items()},
        {name: ARRAYS[f"state/params/{name}"] for name in ("kernel", "bias")},
    )
    assert found["flag"].item() is True


def test_names_are_those_of_load(run, tmp_path):
    rh.export(run, tmp_path / "a.npz", "state/params", step=7)
    with np.load(tmp_path / "a.npz") as found:
        assert set(found) == {"kernel", "bias"}
    rh.export(run, tmp_path / "a.npz", ["state/params/*"])
    with np.load(tmp_path / "a.npz") as found:
        assert set(found) == {"state/params/kernel", "state/params/bias"}


@pytest.mark.parametrize("name", ["one.safetensors", "one.npz"])
def test_an_array_alone_keeps_the_last_part_of_its_name(name, run, tmp_path):
    rh.export(run, tmp_path / name, "state/params/kernel")
    found = rh.load(tmp_path / name)
    assert_same(found, {"kernel": ARRAYS["state/params/kernel"]})


def test_from_one_format_to_another(run, tmp_path):
    rh.export(run, tmp_path / "a.npz")
    rh.export(tmp_path / "a.npz", tmp_path / "a.safetensors")
    assert_same(safetensors.numpy.load_file(tmp_path / "a.safetensors"), ARRAYS)


def dtypes():
    names = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4")
    return {name: np.arange(4).astype(getattr(ml_dtypes, name)) for name in names} | {
        "complex64": np.array([1j], np.complex64),
        "complex128": np.array([1j]),
        "datetime64": np.array(["2020-01-01"], "M8[s]"),
    }


CANNOT = {
    ".safetensors": {"int4", "complex128", "datetime64"},
    ".npz": {"bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"},
    ".pt": {"int4", "datetime64"},
}


@pytest.mark.parametrize("suffix", CANNOT)
@pytest.mark.parametrize("name", dtypes())
def test_dtypes_come_back_or_are_refused(suffix, name, tmp_path):
    if suffix == ".pt":
        pytest.importorskip("torch")
    array = dtypes()[name]
    save(tmp_path / "ckpt", {"group/x": array})
    path = tmp_path / f"file{suffix}"
    if name in CANNOT[suffix]:
        with pytest.raises(TypeError, match=re.escape(f"'group/x' is {array.dtype}, ")):
            rh.export(tmp_path / "ckpt", path)
        assert {it.name for it in tmp_path.iterdir()} == {"ckpt"}
    else:
        rh.export(tmp_path / "ckpt", path)
        found = rh.load(path)["group"]["x"]
        assert found.dtype == array.dtype
        assert found.tobytes() == array.tobytes()


def test_libraries_read_the_dtypes_that_they_have(tmp_path):
    torch = pytest.importorskip("torch")
    import safetensors.torch

    arrays = {name: it for name, it in dtypes().items() if name.startswith(("bfloat", "float8"))}
    save(tmp_path / "ckpt", arrays)
    rh.export(tmp_path / "ckpt", tmp_path / "a.safetensors")
    rh.export(tmp_path / "ckpt", tmp_path / "a.pt")
    for found in (
        safetensors.torch.load_file(tmp_path / "a.safetensors"),
        torch.load(tmp_path / "a.pt", weights_only=True),
    ):
        for name in arrays:
            assert found[name].dtype == getattr(torch, name)
            assert found[name].float().tolist() == [0, 1, 2, 3]


def test_a_file_that_is_there_is_replaced_or_left_as_it_is(run, tmp_path):
    path = tmp_path / "model.npz"
    path.write_text("old")
    file = run / "model.ckpt-7" / "checkpoint.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    with pytest.raises(DataLossError):
        rh.export(run / "model.ckpt-7", path)
    assert path.read_text() == "old"
    assert {it.name for it in tmp_path.iterdir()} == {"run", "model.npz"}
    file.write_bytes(content)
    rh.export(run, path)
    with np.load(path) as found:
        assert found["global_step"] == 7


def test_what_is_wrong_is_said_before_anything_is_written(run, tmp_path):
    for source, target, only, error, message in (
        (run, "model.onnx", None, ValueError, r"\.safetensors, \.npz or \.pt, got.*'\.onnx'"),
        (run, "model.npz", "stat", ValueError, "nothing named 'stat'"),
        (tmp_path / "no", "model.npz", None, NotFoundError, "no checkpoint"),
        (run, None, None, TypeError, "path must be given"),
    ):
        path = None if target is None else tmp_path / target
        with pytest.raises(error, match=message):
            rh.export(source, path, only)
    assert {it.name for it in tmp_path.iterdir()} == {"run"}


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_one_array_at_a_time_is_in_memory(suffix, tmp_path):
    save(tmp_path / "ckpt", {f"w{n}": np.full(1 << 18, n, np.float32) for n in range(32)})
    rh.export(tmp_path / "ckpt", tmp_path / f"first{suffix}", "w0")
    tracemalloc.start()
    rh.export(tmp_path / "ckpt", tmp_path / f"all{suffix}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20  # of 32 MiB
    assert rh.load(tmp_path / f"all{suffix}", "w31")[-1] == 31
