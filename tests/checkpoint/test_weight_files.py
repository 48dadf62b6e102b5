"""Weights in files of other programs, whole, damaged and malicious."""

import copy
import io
import json
import os
import pickle
import zipfile

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import runhooks as rh
from runhooks.checkpoint import Snapshot, write_checkpoint
from runhooks.errors import DataLossError, NotFoundError

ARRAYS = {
    "encoder.layer.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "encoder.layer.0.bias": np.ones(3, np.float16),
    "head/scale": np.array(2.5),
}


def write_safetensors(path, arrays=ARRAYS):
    safetensors.numpy.save_file(arrays, path)


def write_npz(path, arrays=ARRAYS):
    np.savez(path, **arrays)


def write_compressed_npz(path, arrays=ARRAYS):
    np.savez_compressed(path, **arrays)


def write_shards(path, arrays=ARRAYS):
    weight_map = {}
    for n, (name, array) in enumerate(arrays.items()):
        file = f"model-{n + 1:05}-of-{len(arrays):05}.safetensors"
        write_safetensors(path.parent / file, {name: array})
        weight_map[name] = file
    path.write_text(json.dumps({"metadata": {"total_size": 42}, "weight_map": weight_map}))


def write_torch(path, arrays=ARRAYS):
    torch = pytest.importorskip("torch")
    torch.save({name: torch.from_numpy(np.array(it)) for name, it in arrays.items()}, path)


FILES = {
    "model.safetensors": write_safetensors,
    "model.safetensors.index.json": write_shards,
    "model.npz": write_npz,
    "compressed.npz": write_compressed_npz,
    "model.pt": write_torch,
    "model.pth": write_torch,
}


@pytest.fixture(params=FILES)
def file(request, tmp_path):
    FILES[request.param](tmp_path / request.param)
    return tmp_path / request.param


def test_all_arrays(file):
    found = rh.load(file)
    assert found.keys() == {"encoder.layer.0.weight", "encoder.layer.0.bias", "head"}
    np.testing.assert_array_equal(found["encoder.layer.0.weight"], ARRAYS["encoder.layer.0.weight"])
    assert found["encoder.layer.0.bias"].dtype == np.float16
    assert found["head"]["scale"] == 2.5


def test_some_arrays_and_like(file):
    assert rh.load(file, "encoder.layer.0").keys() == {"weight", "bias"}
    like = {"weight": np.zeros((2, 3)), "bias": np.zeros(3)}
    found = rh.load(str(file), "encoder.layer.0", like=like)
    assert found["bias"].dtype == np.float64
    with pytest.raises(ValueError, match="encodr.*did you mean"):
        rh.load(file, "encodr.layer.0")
    with pytest.raises(ValueError, match="one checkpoint or file"):
        rh.load(file, step=3)


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
def test_a_folder_of_hugging_face(name, tmp_path):
    FILES[name](tmp_path / name)
    (tmp_path / "config.json").write_text("{}")
    assert rh.load(tmp_path, "head/scale") == 2.5


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
def test_checkpoints_come_before_an_export_beside_them(name, tmp_path):
    run = tmp_path / "run"
    for step in (1, 2):
        arrays = {"w": np.full(3, step, np.float32)}
        write_checkpoint(run / f"model.ckpt-{step}", Snapshot(arrays, {}), global_step=step)
    for folder in (run, run / "model.ckpt-1"):
        FILES[name](folder / name, {"w": np.zeros(3, np.float32)})
    assert rh.load(run, "w").tolist() == [2, 2, 2]
    assert rh.load(run, "w", step=1).tolist() == [1, 1, 1]
    assert rh.load(run / "model.ckpt-1", "w").tolist() == [1, 1, 1]
    assert rh.load(run / name, "w").tolist() == [0, 0, 0]
    rh.export(run, tmp_path / "new.safetensors")
    assert safetensors.numpy.load_file(tmp_path / "new.safetensors")["w"].tolist() == [2, 2, 2]
    graph = rh.graph(lambda w: w, w=np.zeros(3, np.float32))
    scaffold = rh.Scaffold(init_from=rh.InitFrom(run))
    with graph.as_default(), rh.MonitoredTrainingSession(scaffold=scaffold) as session:
        assert session.run("w").tolist() == [2, 2, 2]


def test_dtypes_of_ml_dtypes(tmp_path):
    torch = pytest.importorskip("torch")
    values = torch.arange(4)
    dtypes = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn}
    tensors = {name: values.to(dtype) for name, dtype in dtypes.items()}
    torch.save({"nested": [tensors], "epoch": 3}, tmp_path / "a.pt")
    import safetensors.torch

    safetensors.torch.save_file(tensors, tmp_path / "a.safetensors")
    for found in (rh.load(tmp_path / "a.pt", "nested/0"), rh.load(tmp_path / "a.safetensors")):
        for name in dtypes:
            assert found[name].dtype == getattr(ml_dtypes, name)
            assert found[name].astype(np.float32).tolist() == [0, 1, 2, 3]


def test_the_format_that_torch_wrote_before(tmp_path):
    torch = pytest.importorskip("torch")
    state = {"w": torch.ones(2, dtype=torch.bfloat16)}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    assert rh.load(tmp_path / "a.pt")["w"].astype(np.float32).tolist() == [1, 1]


def test_a_file_that_is_not_there(tmp_path):
    for name in FILES:
        with pytest.raises(NotFoundError, match=name):
            rh.load(tmp_path / name)


def test_a_shard_that_is_not_there(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    write_shards(path)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(NotFoundError, match="model-00002-of-00003.safetensors"):
        rh.load(path)


def test_a_link_is_followed_and_named(file, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"  # as in the cache of Hugging Face
    snapshot.mkdir()
    files = [it for it in tmp_path.iterdir() if it.is_file()]
    blobs.mkdir()
    for number, it in enumerate(files):
        it.rename(blobs / str(number))
        (snapshot / it.name).symlink_to(f"../blobs/{number}")
    link = snapshot / file.name
    assert rh.load(link, "head/scale") == 2.5
    target = link.resolve()
    target.write_bytes(target.read_bytes()[:-1])
    with pytest.raises(DataLossError, match=str(link)):
        rh.load(link)
    target.unlink()
    with pytest.raises(NotFoundError, match=f"there is no file {link}"):
        rh.load(link)
    link.unlink()
    link.symlink_to(link.name)
    with pytest.raises(DataLossError, match=str(link)):
        rh.load(link)


def test_a_folder_of_links(tmp_path):
    write_shards(tmp_path / "model.safetensors.index.json")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for number, it in enumerate(sorted(tmp_path.glob("*.*"))):
        (snapshot / it.name).symlink_to(it.rename(tmp_path / str(number)))
    assert rh.load(snapshot, "head/scale") == 2.5


@pytest.mark.parametrize("name", FILES)
def test_a_link_to_what_is_no_regular_file_is_not_opened(name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / name).symlink_to("pipe")
    with pytest.raises(DataLossError, match=f"{name} cannot be read.*not a regular file"):
        rh.load(tmp_path / name)


def test_every_file_that_is_cut_short_is_refused(file):
    content = file.read_bytes()
    for size in {0, 1, 9, len(content) // 2, len(content) - 1}:
        file.write_bytes(content[:size])
        with pytest.raises(DataLossError, match=file.name):
            rh.load(file)


def test_bytes_that_differ_are_seen_where_there_is_a_checksum(tmp_path):
    path = tmp_path / "a.npz"
    write_npz(path, {"a": np.full(1000, 7, np.uint8)})
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\7\7\7\7", b"\7\7\7\6", 1))
    with pytest.raises(DataLossError, match="CRC"):
        rh.load(path)


@pytest.mark.parametrize("bytes_of", ["weight", "values"])
def test_bytes_of_a_torch_file_that_differ_are_seen(bytes_of, tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "a.pt"
    torch.save({"weight": torch.tensor([1234.5])}, path)
    old = b"weight" if bytes_of == "weight" else np.float32(1234.5).tobytes()
    path.write_bytes(path.read_bytes().replace(old, bytes([old[0] ^ 1]) + old[1:]))
    with pytest.raises(DataLossError, match=r"a\.pt cannot be read: .*CRC-32"):
        rh.load(path)


def test_a_torch_file_without_checksums_is_read(tmp_path):
    torch = pytest.importorskip("torch")
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.ones(2)}, tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert rh.load(tmp_path / "a.pt")["w"].tolist() == [1, 1]


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("a/b", lambda it: {"a/b": it, "a": {"b": it}}),
        ("0", lambda it: {0: it, "0": it}),
        ("x/0", lambda it: {"x": [it], "x/0": it}),
    ],
)
def test_arrays_of_torch_with_one_name_are_refused(name, named, tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "model.pt"
    torch.save(named(torch.ones(2)), path)
    with pytest.raises(DataLossError, match=f"model.pt.*two leaves.*{name!r}"):
        rh.load(path)


def test_arrays_of_an_npz_with_one_name_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    with zipfile.ZipFile(path, "w") as members:
        for name in ("a", "a.npy"):
            content = io.BytesIO()
            np.save(content, np.zeros(2))
            members.writestr(name, content.getvalue())
    with pytest.raises(DataLossError, match="model.npz.*two leaves.*'a'"):
        rh.load(path)


def test_nothing_is_unpickled(tmp_path):
    torch = pytest.importorskip("torch")
    trap = tmp_path / "trap"
    np.savez(tmp_path / "a.npz", a=np.array([Evil(trap)], object), b=np.zeros(1))
    torch.save({"a": Evil(trap)}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Evil(trap)))
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Evil(trap)))
    for name in ("a.npz", "a.pt", "b.pt", "b.npz"):
        with pytest.raises(DataLossError, match=name):
            rh.load(tmp_path / name)
    assert not trap.exists()
    with pytest.raises(DataLossError, match="weights_only=True"):
        rh.load(tmp_path / "a.pt")


def npz_with(header, size, compression=zipfile.ZIP_STORED):
    data = io.BytesIO()
    np.lib.format.write_array_header_1_0(data, header)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as members:
        members.writestr("a.npy", data.getvalue() + bytes(size))
    return out.getvalue()


HUGE = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
SMALL = {"descr": "<f8", "fortran_order": False, "shape": (4,)}


def npz_that_overlaps():
    """A file of which several members share the same compressed zeros."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as members:
        data = io.BytesIO()
        np.save(data, np.zeros(1 << 16))
        members.writestr("a.npy", data.getvalue())
        for name in "bcdefghijklmnopqrstuvw":
            members.filelist.append(copy.copy(members.filelist[0]))
            members.filelist[-1].filename = f"{name}.npy"
    return out.getvalue()


HUGE = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
SMALL = {"descr": "<f8", "fortran_order": False, "shape": (4,)}


@pytest.mark.parametrize(("place", "content"), [(-12, bytes(8)), (-14, bytes(4) + bytes(6))])
def test_an_npz_whose_list_of_members_is_lost(place, content, tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.ones(3), b=np.zeros(2))
    data = bytearray(path.read_bytes())
    data[place : place + len(content)] = content
    path.write_bytes(data)
    with pytest.raises(DataLossError, match="a.npz"):
        rh.load(path)


def test_an_npz_in_which_a_comment_hides_a_member(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.ones(3), b=np.zeros(2))
    data = bytearray(path.read_bytes())
    first = data.index(b"PK\1\2")
    second = data.index(b"PK\1\2", first + 1)
    data[first + 32 : first + 34] = (data.index(b"PK\5\6") - second).to_bytes(2, "little")
    path.write_bytes(data)
    with pytest.raises(DataLossError, match="a.npz"):
        rh.load(path)


@pytest.mark.parametrize(
    "content",
    [
        npz_with(HUGE, 32),
        npz_with(SMALL, 31),
        npz_with(SMALL, 33),
        npz_with({**SMALL, "shape": (-4,)}, 32),
        npz_with({**SMALL, "descr": "|O"}, 32),
        npz_with(SMALL, 32, zipfile.ZIP_LZMA),
        npz_with({**SMALL, "shape": (True,)}, 8),
        npz_with({**SMALL, "shape": (0, 1 << 62, 1 << 62)}, 0),
        npz_that_overlaps(),
    ],
    ids=["huge", "short", "long", "negative", "objects", "lzma", "bool", "empty", "overlap"],
)
def test_an_npz_that_lies(content, tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(DataLossError, match="a.npz cannot be read"):
        rh.load(path)


@pytest.mark.parametrize(
    "index",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": "../model.safetensors"}}',
        '{"weight_map": {"a": "/etc/passwd"}}',
        '{"weight_map": {"a": "model.bin"}}',
        '{"weight_map": {"other": "one.safetensors"}}',
        "[" * 100_000,
    ],
    ids=range(10),
)
def test_an_index_that_lies(index, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    write_safetensors(tmp_path / "model.safetensors", {"a": np.zeros(1)})
    write_safetensors(folder / "one.safetensors", {"a": np.zeros(1)})
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(DataLossError, match="index.json cannot be read"):
        rh.load(folder)


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_regular_file_is_not_opened(name, tmp_path):
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(DataLossError, match="not a regular file"):
        rh.load(path)


def test_a_file_name_in_an_index_that_is_too_long(tmp_path):
    name = "a" * 5000 + ".safetensors"
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(NotFoundError, match=f"there is no file {tmp_path}/aaa"):
        rh.load(path)


def torch_tensors(torch):
    return {
        "once for many": torch.ones(1).expand(10**9),
        "sparse": torch.sparse_coo_tensor([[0]], [1.0], (10**12,), check_invariants=True),
    }


@pytest.mark.parametrize("kind", ["once for many", "sparse"])
def test_a_file_of_torch_takes_no_more_memory_than_its_size_allows(kind, tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "a.pt"
    torch.save({"w": torch_tensors(torch)[kind], "b": torch.ones(2)}, path)
    with pytest.raises(DataLossError, match=r"a\.pt cannot be read") as caught:
        rh.load(path)
    assert "1100 times" in str(caught.value)
    assert rh.load(path, ["b"])["b"].tolist() == [1, 1]


def test_tensors_of_other_layouts_are_dense(tmp_path):
    torch = pytest.importorskip("torch")
    tensors = {
        "expanded": torch.ones(1).expand(5, 2),
        "sparse": torch.eye(3).to_sparse(),
    }
    torch.save(tensors, tmp_path / "a.pt")
    found = rh.load(tmp_path / "a.pt")
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor.to_dense() if name != "expanded" else 1)
        found[name] += 1


@pytest.mark.filterwarnings("ignore:.*(quantize|TypedStorage)")
def test_quantized_tensors_are_read_as_what_they_stand_for(tmp_path):
    torch = pytest.importorskip("torch")
    values = torch.tensor([0.25, -1.0, 3.0])
    torch.save({"w": torch.quantize_per_tensor(values, 0.25, 0, torch.qint8)}, tmp_path / "a.pt")
    assert rh.load(tmp_path / "a.pt")["w"].tolist() == values.tolist()


@pytest.mark.filterwarnings("ignore:.*nested")
@pytest.mark.parametrize("kind", ["nested", "meta"])
def test_tensors_without_values_are_refused(kind, tmp_path):
    torch = pytest.importorskip("torch")
    tensor = (
        torch.empty(10, device="meta")
        if kind == "meta"
        else torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    )
    torch.save({"w": tensor}, tmp_path / "a.pt")
    with pytest.raises(DataLossError, match=rf"a\.pt cannot be read: 'w': a .*{kind}"):
        rh.load(tmp_path / "a.pt")


@pytest.mark.parametrize("name", ["model.npz", "compressed.npz", "model.safetensors", "model.pt"])
def test_whatever_is_wrong_with_a_file_the_error_names_it(name, tmp_path):
    path = tmp_path / name
    FILES[name](path)
    sound = path.read_bytes()

    @settings(deadline=None, max_examples=40)
    @given(st.integers(0, len(sound) - 1), st.binary(max_size=8), st.integers(0, 8))
    def damage(at, put, cut):
        path.write_bytes(sound[:at] + put + sound[at + cut :])
        try:
            rh.load(path)
        except DataLossError as error:
            assert error.path == str(path)  # noqa: PT017 - some damages do no harm

    damage()
