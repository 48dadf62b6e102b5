"""Arrays of a checkpoint without the graph that saved it, by their names or new ones."""

import collections
import dataclasses
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import Snapshot, write_checkpoint
from runhooks.checkpoint.names import Only, Renaming

Layer = collections.namedtuple("Layer", ["kernel", "bias"])
STATE = {
    "layers": [Layer(np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3)), Layer(1.5, True)],
    "half": np.arange(3).astype(ml_dtypes.bfloat16),
    "complex": np.array([1 + 2j]),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A checkpoint of a graph."""
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        rh.Variable(STATE, name="state")
        rh.Variable(np.zeros((3, 0)), name="empty")
        with rh.Session() as session:
            where = tmp_path_factory.mktemp("run") / "model.ckpt"
            return rh.Saver().save(session, where, global_step=0)


def test_all_arrays_nested_as_their_names_are(path):
    found = rh.load(path)
    assert found.keys() == {"state", "empty", "global_step"}
    assert found["global_step"].dtype == np.int64
    layers = found["state"]["layers"]
    assert layers["0"]["kernel"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert layers["1"].keys() == {"kernel", "bias"}
    assert found["state"]["half"].dtype == ml_dtypes.bfloat16
    assert found["state"]["complex"].tolist() == [1 + 2j]
    assert found["empty"].shape == (3, 0)


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "copy.safetensors"])
def test_a_file_of_a_checkpoint_is_no_file_of_weights(name, tmp_path):
    graph = rh.graph(lambda w: (w + 1, {}), w=np.zeros(2, complex))
    with graph.as_default(), rh.Session() as session:
        path = Path(rh.Saver().save(session, tmp_path / "model.ckpt", 1))
    file = (path / "checkpoint.safetensors").rename(path / name)
    for read in (rh.load, lambda it: rh.export(it, tmp_path / "w.safetensors")):
        with pytest.raises(ValueError, match=f"{name} is a file of a checkpoint.*its folder"):
            read(file)
    assert not (tmp_path / "w.safetensors").exists()


def test_what_is_loaded_is_the_callers_own(path):
    kernel = rh.load(path, "state/layers/0/kernel")
    kernel += 1
    assert rh.load(path, "state/layers/0/kernel").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_name_is_what_it_names(path):
    assert rh.load(path, "state/layers/0").keys() == {"kernel", "bias"}
    assert rh.load(path, "state/layers/1/kernel") == 1.5
    assert rh.load(path, only="global_step") == 0


def leaves(tree, path=""):
    if not isinstance(tree, dict):
        return {path}
    return {leaf for key, it in tree.items() for leaf in leaves(it, f"{path}/{key}".strip("/"))}


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("*/kernel", {"state/layers/0/kernel", "state/layers/1/kernel"}),
        ("state/layers/*", {f"state/layers/{n}/{it}" for n in (0, 1) for it in Layer._fields}),
        (["state/half", "*/1/bias"], {"state/half", "state/layers/1/bias"}),
        (["state/*lay*", "!*/bias"], {"state/layers/0/kernel", "state/layers/1/kernel"}),
        ("!state", {"global_step", "empty"}),
    ],
)
def test_patterns_and_lists_begin_at_the_top(path, only, expected):
    assert leaves(rh.load(path, only)) == expected


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("stat/layers", "nothing named 'stat/layers'; did you mean 'state/layers'"),
        (["state", "hed*"], r"nothing named 'hed\*'"),
        ("!heads", "nothing named 'heads'"),
        ("stat", "nothing named 'stat'"),
        ("", "only must be a name"),
        ([], "only must be a name"),
        ([3], "only must be a name"),
    ],
)
def test_names_that_match_nothing_are_errors(path, only, message):
    with pytest.raises((ValueError, TypeError), match=message):
        rh.load(path, only)


def test_like_gives_structure_and_dtypes(path):
    like = {
        "layers": [Layer(np.zeros((2, 3)), np.zeros(3, np.float32)), Layer(0.0, False)],
        "half": np.zeros(3, np.float32),
        "complex": np.zeros(1, np.complex64),
    }
    found = rh.load(path, "state", like=like)
    assert type(found["layers"]) is list
    assert type(found["layers"][0]) is Layer
    assert found["layers"][0].kernel.dtype == np.float64
    assert found["layers"][0].kernel.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["half"].dtype == np.float32
    assert found["complex"].dtype == np.complex64
    assert (found["layers"][1].kernel, found["layers"][1].bias) == (1.5, True)
    assert [type(it) for it in found["layers"][1]] == [float, bool]
    assert like["layers"][0].kernel.max() == 0


def test_like_may_be_a_dataclass(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class State:
        weights: Any
        others: list

    def step(state):
        return State(state.weights + 1, [it + 2 for it in state.others])

    with rh.graph(step, state=State(np.zeros(2), [np.zeros(1)])).as_default():
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
            session.run("train_op")
    found = rh.load(tmp_path, "state", like=State(np.zeros(2), [np.zeros(1)]))
    assert type(found) is State
    assert (found.weights.tolist(), found.others[0].tolist()) == ([1, 1], [2])


def test_like_may_be_a_part_or_have_more_than_arrays(path):
    found = rh.load(path, like={"state": {"half": np.zeros(3, np.float32), "name": "x", "f": None}})
    assert found["state"].keys() == {"half", "name", "f"}
    assert found["state"]["name"] == "x"
    assert rh.load(path, "state/half", like=np.zeros(3, np.float16)).dtype == np.float16


def test_what_is_asked_for_and_has_no_place_in_like_is_named(path, caplog):
    like = {"half": np.zeros(3, np.float32), "complex": np.zeros(1, np.complex64)}
    rh.load(path, like={"state": like})  # like itself says what is wanted
    rh.load(path, ["state/half", "state/complex"], like={"state": like})
    assert not caplog.records
    rh.load(path, "state", like=like)
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.endswith(
        "state/layers/0/kernel, state/layers/0/bias, state/layers/1/kernel, state/layers/1/bias"
    )


@pytest.mark.parametrize(
    ("only", "like", "message"),
    [
        ("state", {"half": np.zeros(4)}, r"'half' is float64\[4\], 'state/half' is bfloat16\[3\]"),
        ("state", {"halve": np.zeros(3)}, "nothing for halve; did you mean 'half'"),
        (None, {"half": np.zeros(3)}, "nothing for half; did you mean 'state/half'"),
        (None, {"step": 3}, "nothing for step"),
        ("state/half", np.zeros(3, int), "'state/half'.*bfloat16, which does not become int64"),
        ("state/layers/1", {"bias": 0}, "it is bool, and not int"),
        ("state/half", ["x"], "like must be a tree of arrays"),
        ("state/half", rh, "like must be a tree of arrays, got module.*state_dict"),
        ("state", {"layers": {"0": "text"}, "half": np.zeros(3)}, None),
        ("state", {"half": "text", "complex": np.zeros(1, complex)}, "'half' must be an array"),
    ],
)
def test_what_does_not_fit_like(path, only, like, message):
    if message is None:
        assert rh.load(path, only, like=like)["layers"] == {"0": "text"}
        return
    with pytest.raises((ValueError, TypeError), match=message):
        rh.load(path, only, like=like)


def test_integers_that_are_too_large_for_like(tmp_path):
    path = tmp_path / "ckpt"
    write_checkpoint(path, Snapshot({"n": np.array([1, 1 << 40])}, {}), global_step=None)
    with pytest.raises(ValueError, match="'n'.*too large for int32"):
        rh.load(path, "n", like=np.zeros(2, np.int32))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.float32(1e6), np.float16),
        (np.array([1, 1e39]), np.float32),
        (np.array([np.nan, np.finfo(np.float32).max], np.float32), ml_dtypes.bfloat16),
        (np.array([-500.0]), ml_dtypes.float8_e4m3fn),
        (np.array([1, 1e39j]), np.complex64),
    ],
)
def test_floats_that_are_too_large_for_like(value, wanted, tmp_path):
    path = tmp_path / "ckpt"
    arrays = {"x": np.asarray(value), "y": np.asarray(value) * 0 + np.inf}
    write_checkpoint(path, Snapshot(arrays, {}), global_step=None)
    like = np.zeros(np.shape(value), wanted)
    with pytest.raises(ValueError, match=f"'x'.*too large for {like.dtype}"):
        rh.load(path, "x", like=like)
    assert not np.isfinite(rh.load(path, "y", like=like).astype(complex)).any()


@pytest.mark.parametrize("wanted", [np.uint8, np.uint64, ml_dtypes.uint4])
def test_integers_of_ml_dtypes_below_those_of_like(wanted, tmp_path):
    numbers = {"below": [-1, 1], "above": [0, 1]}
    arrays = {name: np.array(it, ml_dtypes.int4) for name, it in numbers.items()}
    write_checkpoint(tmp_path / "ckpt", Snapshot(arrays, {}), global_step=None)
    like = np.zeros(2, wanted)
    with pytest.raises(ValueError, match=f"'below'.*is int4, .*too large for {like.dtype}"):
        rh.load(tmp_path / "ckpt", "below", like)
    found = rh.load(tmp_path / "ckpt", "above", like)
    assert found.dtype == wanted
    assert found.tolist() == [0, 1]


def test_names_that_cannot_be_nested(tmp_path):
    path = tmp_path / "ckpt"
    arrays = {"a": np.zeros(1), "a/b": np.ones(2), "c": np.zeros(3)}
    write_checkpoint(path, Snapshot(arrays, {}), global_step=None)
    with pytest.raises(ValueError, match="cannot be nested.*only"):
        rh.load(path)
    assert rh.load(path, ["c", "a/b"])["a"]["b"].tolist() == [1, 1]


def test_names_that_differ_in_the_separator_after_the_one_asked_for(tmp_path):
    names = "s/layer/scale", "s/layer.scale"
    arrays = {name: np.array(n) for n, name in enumerate(names)}
    write_checkpoint(tmp_path / "ckpt", Snapshot(arrays, {}), global_step=None)
    message = "'s/layer/scale' and 's/layer.scale'.* give 's/layer/' or 's/layer.' for one, .'s/lay"
    for like in (None, {"scale": np.array(0)}):
        with pytest.raises(ValueError, match=message):
            rh.load(tmp_path / "ckpt", "s/layer", like)
    with pytest.raises(ValueError, match=message):
        rh.export(tmp_path / "ckpt", tmp_path / "a.safetensors", "s/layer")
    assert rh.load(tmp_path / "ckpt", "s/layer/", {"scale": np.array(7)}) == {"scale": 0}
    assert rh.load(tmp_path / "ckpt", "s/layer.") == {"scale": 1}
    assert rh.load(tmp_path / "ckpt", ["s/layer"])["s"] == {"layer": {"scale": 0}, "layer.scale": 1}


def test_a_name_keeps_all_separators_after_the_first(tmp_path):
    arrays = {"s/a": np.array(0), "s//a": np.array(1), "s/.a": np.array(2)}
    write_checkpoint(tmp_path / "ckpt", Snapshot(arrays, {}), global_step=None)
    assert rh.load(tmp_path / "ckpt", "s") == {"a": 0, "": {"a": 1}, ".a": 2}
    like = {"a": np.array(7), ".a": np.array(7)}
    assert rh.load(tmp_path / "ckpt", "s", like) == {"a": 0, ".a": 2}


def test_no_more_is_read_than_is_asked_for(tmp_path):
    path = tmp_path / "ckpt"
    arrays = {f"w{n}": np.full(1 << 18, n, np.float32) for n in range(32)}
    write_checkpoint(path, Snapshot(arrays, {}), global_step=None)
    del arrays
    rh.load(path, "w0")
    tracemalloc.start()
    found = rh.load(path, "w7")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found[0] == 7
    assert peak < 8 << 20  # of 32 MiB: one array, and a piece of the file


@pytest.mark.parametrize(
    ("rename", "name", "new"),
    [
        ({"a": "b"}, "a", "b"),
        ({"a": "b"}, "a/x", "b/x"),
        ({"a": "b"}, "a.x", "b.x"),
        ({"a": "b"}, "ab/x", "ab/x"),
        ({"a": "b", "a/x": "c"}, "a/x/y", "c/y"),
        ({"": "model/"}, "w", "model/w"),
        ({"bert.": "model/"}, "bert.w.b", "model/w.b"),
        ({"state/": ""}, "state/w", "w"),
    ],
)
def test_new_names_and_the_way_back(rename, name, new):
    renaming = Renaming(rename)
    assert renaming.new(name) == new
    assert renaming.old(new) == name


def test_a_name_that_nothing_gets():
    assert Renaming({"": "model/"}).old("optimizer/x") is None
    assert Renaming({"a": "b"}).old("a") is None


def test_a_name_ends_where_a_separator_is():
    names = ["conv", "conv1.weight", "conv1.bias", "conv10.weight"]
    assert Only("conv1").of(names, "") == names[1:3]
    assert Only("conv1").relative(names, "") == {"weight": names[1], "bias": names[2]}


def test_a_name_with_the_signs_of_a_pattern():
    assert Only("a[0]").of(["a[0]/x", "a0/x"], "") == ["a[0]/x"]
    assert Only("a[*]").of(["a[0]/x", "a0/x"], "") == ["a[0]/x"]
