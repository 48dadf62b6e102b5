"""What hooks and inputs keep comes back from a checkpoint as what it was, type by type."""

import random
import signal
import warnings
from collections import OrderedDict
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from runhooks.checkpoint import Snapshot, read_checkpoint, states, write_checkpoint


@pytest.fixture
def through_disk(tmp_path):
    """Saves a state in a checkpoint and reads it back."""

    def through_disk(state):
        write_checkpoint(tmp_path / "model", Snapshot({}, {"hook": state}), global_step=None)
        return read_checkpoint(tmp_path / "model").states["hook"]

    return through_disk


def assert_same(back, kept):
    """Equal, and of equal types, all the way down; NaN is NaN, and the order of keys counts."""
    assert type(back) is type(kept)
    if isinstance(kept, dict):
        assert_same(list(back), list(kept))
        assert_same(list(back.values()), list(kept.values()))
    elif isinstance(kept, list | tuple):
        assert len(back) == len(kept)
        for one, other in zip(back, kept, strict=True):
            assert_same(one, other)
    elif isinstance(kept, torch.Tensor):
        assert back.dtype == kept.dtype
        assert torch.equal(back, kept) or torch.equal(back.view(torch.int8), kept.view(torch.int8))
    elif isinstance(kept, np.generic | np.ndarray | jax.Array):
        assert back.dtype == kept.dtype
        assert back.shape == kept.shape
        assert np.asarray(back).tobytes() == np.asarray(kept).tobytes()
    else:
        assert back == kept or (back != back and kept != kept)


texts = st.text() | st.text(st.characters(categories=["Cs", "L"]), max_size=3)
integers = st.integers() | st.sampled_from([1 << 3000, -(1 << 3000)])
leaves = st.none() | st.booleans() | integers | st.floats() | texts | st.binary()
keys = st.recursive(
    leaves,
    lambda inner: st.tuples(inner, inner),
    max_leaves=3,
) | st.sampled_from(["$tuple", "$bytes", "$dict", "$array", "$", ""])
values = st.recursive(
    leaves
    | st.sampled_from([np.longdouble(1) / 3, ml_dtypes.bfloat16(0.1), np.datetime64("NaT")])
    | np_st.scalar_dtypes().flatmap(np_st.from_dtype)
    | np_st.arrays(np_st.scalar_dtypes(), np_st.array_shapes(min_dims=0, min_side=0)),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(keys, inner)
        | st.dictionaries(keys, inner).map(OrderedDict)
    ),
    max_leaves=20,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(st.dictionaries(st.text() | st.just("$tuple"), values))
def test_whatever_can_be_saved_comes_back_as_it_was(kept):
    try:
        encoded = states.encode(kept)
    except TypeError as error:
        assert "which a checkpoint cannot hold" in str(error)  # noqa: PT017
        assume(False)
    assert_same(states.decode(encoded), kept)


def test_what_json_has_is_plain_json():
    kept = {"EarlyStop": {"best": 0.25, "patience": 3, "seen": [1, None, True]}}
    assert states.encode(kept) == (
        b'{"EarlyStop": {"best": 0.25, "patience": 3, "seen": [1, null, true]}}',
        {},
    )


KEPT = [
    np.uint64(2**64 - 1),
    ml_dtypes.bfloat16(0.1),
    np.array(["é", "ab"]),
    np.array([1.5], ">f4"),
    np.array([0.1, np.nan, -np.inf], ml_dtypes.bfloat16),
    np.ones(3, ml_dtypes.float8_e4m3fn),
    np.timedelta64(-3, "25s"),
    np.longdouble(1) / 3,
    ml_dtypes.int4(-3),
    np.array([1, -2], ml_dtypes.int4),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(10)[::-2],
    torch.tensor(3),
    torch.zeros(0, 2),
    torch.tensor([0.1, -2], dtype=torch.bfloat16),
    torch.tensor([True, False]),
    torch.tensor([1 + 2j]).conj(),
    torch.arange(6).reshape(2, 3).T,
    torch.ones(3, dtype=torch.float8_e5m2),
    jnp.float32(0.1),
    jnp.array([0.1, jnp.nan], jnp.bfloat16),
]


@pytest.mark.parametrize("kept", KEPT, ids=lambda it: f"{type(it).__name__}-{it.dtype}-{it.shape}")
def test_numbers_and_arrays_of_libraries(through_disk, kept):
    back = through_disk({"best": kept, "seen": [kept]})
    assert_same(back, {"best": kept, "seen": [kept]})
    if isinstance(back["best"], np.ndarray):
        back["best"][...] = back["best"]  # it may be written to


def test_versions_of_modules_in_state_dicts_of_torch(through_disk):
    kept = torch.nn.Sequential(torch.nn.BatchNorm1d(1)).state_dict()
    states_back = through_disk({"nets": [kept], "again": kept})
    for back in (states_back["nets"][0], states_back["again"]):
        assert_same(back, kept)
        assert_same(back._metadata, kept._metadata)
    assert kept._metadata["0"]["version"] == 2


def test_state_dicts_of_torch_that_were_saved_without_versions():
    text = b'{"hook": {"net": {"$ordered": [["w", 1.5]]}}}'
    back = states.decode(states.EncodedStates(text, {}))
    assert_same(back, {"hook": {"net": OrderedDict(w=1.5)}})


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_of_jax(through_disk, impl):
    keys = jax.random.split(jax.random.key(3, impl=impl), 2)
    back = through_disk({"keys": keys})["keys"]
    assert back.dtype == keys.dtype
    assert jax.random.uniform(back[1]) == jax.random.uniform(keys[1])


def test_random_states_go_on_where_they_were(through_disk):
    generators = [np.random.default_rng(3), np.random.Generator(np.random.MT19937(3))]
    torch_rng, python_rng = torch.Generator().manual_seed(3), random.Random(3)
    back = through_disk(
        {
            "numpy": [generator.bit_generator.state for generator in generators],
            "torch": torch_rng.get_state(),
            "python": python_rng.getstate(),
        }
    )
    drawn = [generator.random() for generator in generators]
    drawn += [torch.rand(1, generator=torch_rng).item(), python_rng.random()]
    for generator, state in zip(generators, back["numpy"], strict=True):
        generator.bit_generator.state = state
    torch_rng.set_state(back["torch"])
    python_rng.setstate(back["python"])
    again = [generator.random() for generator in generators]
    again += [torch.rand(1, generator=torch_rng).item(), python_rng.random()]
    assert again == drawn


def test_later_changes_of_a_state_do_not_reach_what_is_saved():
    kept = {"numpy": np.zeros(2), "torch": torch.zeros(2), "list": [0]}
    encoded = states.encode(kept)
    kept["numpy"] += 1
    kept["torch"] += 1
    kept["list"][0] += 1
    expected = {"numpy": np.zeros(2), "torch": torch.zeros(2), "list": [0]}
    assert_same(states.decode(encoded), expected)


class Point(NamedTuple):
    x: int


def ragged():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"b": [0, 1j]}}, "'hook/a/b/1'"),
        ({"a": {1, 2}}, "'hook/a'"),
        ({"a": [({0: object()},)]}, "'hook/a/0/0/0'"),
        ({"a": Point(1)}, "'hook/a'"),
        ({"a": signal.SIGTERM}, "'hook/a'"),
        ({"a": MappingProxyType({})}, "'hook/a'"),
        ({"a": np.array([None])}, "'hook/a'"),
        ({"a": np.zeros(1, [("x", "f4")])}, "'hook/a'"),
        ({"a": np.ma.zeros(2)}, "'hook/a'"),
        ({"a": np.str_("a")}, "'hook/a'"),
        ({"a": np.bytes_(b"a")}, "'hook/a'"),
        ({"a": np.void(b"a")}, "'hook/a'"),
        ({"a": np.zeros(3, "V0")}, "'hook/a'"),
        ({"a": ragged()}, "'hook/a'"),
        ({"a": np.zeros(1, [("x", "f4")])[0]}, "'hook/a'"),
        ({"a": torch.nn.Parameter(torch.zeros(1))}, "'hook/a'"),
        ({"a": torch.zeros(2).to_sparse()}, "'hook/a'"),
        ({"a": {frozenset(): 1}}, r"'hook/a' .* frozenset\(\)"),
        ({"a": {(1, np.int64(2)): 1}}, "'hook/a' .* key"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_refuses_what_would_not_come_back(state, message):
    with pytest.raises(TypeError, match=message):
        states.encode({"hook": state})


def test_whole_numbers_of_any_length_come_back():
    kept = {"a": -(10**9000), 10**9000: [10**4299]}
    assert states.decode(states.encode({"hook": kept}))["hook"] == kept
    with pytest.raises(TypeError, match="'hook/0x"):
        states.encode({"hook": {10**9000: 1j}})


def nested(levels, wrap):
    state = 5
    for _ in range(levels):
        state = wrap(state)
    return state


def with_versions(it):
    state = OrderedDict(a=it)
    state._metadata = {"": {"version": 1}}
    return state


WRAPS = [
    lambda it: [it],
    lambda it: (it,),
    lambda it: {"a": it},
    lambda it: {1: it},
    lambda it: OrderedDict(a=it),
    lambda it: with_versions(it),
]


@pytest.mark.parametrize("wrap", WRAPS)
def test_refuses_what_is_nested_too_deeply(wrap):
    for levels in (200, 1000):
        with pytest.raises(ValueError, match="'hook/deep"):
            states.encode({"hook": {"deep": nested(levels, wrap)}})


@pytest.mark.parametrize("wrap", WRAPS)
def test_what_is_nested_deeply_comes_back(wrap):
    state = {"deep": nested(97, wrap)}

    def deep(frames):
        return deep(frames - 1) if frames else states.decode(states.encode(state))

    assert deep(300) == state


def test_refuses_keys_that_are_nested_too_deeply():
    key = nested(500, lambda it: (it,))
    with pytest.raises(ValueError, match="'hook'"):
        states.encode({"hook": {key: 5}})


@pytest.mark.parametrize("kind", [dict, OrderedDict, list])
def test_refuses_what_contains_itself(kind):
    state = kind()
    state.append(state) if kind is list else state.update(again=state)
    with pytest.raises(ValueError, match="'hook/state") as error:
        states.encode({"hook": {"state": state}})
    assert len(str(error.value)) < 300
