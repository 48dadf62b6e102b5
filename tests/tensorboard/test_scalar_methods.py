"""Numbers: ours beside torch's and tensorboardX's."""

from __future__ import annotations

import json

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from runhooks.tensorboard import SummaryWriter

NUMBERS = {
    "float": 0.1,
    "int": 3,
    "bool": True,
    "inf": float("-inf"),
    "numpy float64": np.float64(0.1),
    "numpy float16": np.float16(0.1),
    "numpy int64": np.int64(1 << 40),
    "array of one": np.array([[2.5]]),
    "array without axes": np.array(2.5),
    "text": "0.5",
    "torch float32": torch.tensor(0.1),
    "torch with a gradient": torch.tensor([0.1], requires_grad=True),
    "torch int64": torch.tensor(1 << 40),
    "torch bfloat16": torch.tensor(0.1, dtype=torch.bfloat16),
    "torch float64": torch.tensor([[0.1]], dtype=torch.float64),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_scalars_are_those_of_torch(name, same_as_torch):
    value = NUMBERS[name]

    def add(writer):
        writer.add_scalar("plain", value, 3)
        writer.add_scalar("without a step", value)
        writer.add_scalar("new", value, 4, new_style=True)
        writer.add_scalar("double", value, 5, new_style=True, double_precision=True)
        writer.add_scalar("ignored", value, 5, double_precision=True)

    same_as_torch(add)


@pytest.mark.parametrize("name", ["list", "jax"])
def test_lists_and_arrays_of_jax_are_taken_as_by_tensorboardx(name, same_as_tensorboardx):
    value = {"list": [1.5], "jax": jnp.float32(1.5)}[name]
    same_as_tensorboardx(lambda writer: writer.add_scalar("loss", value, 1))


def test_nan_is_written(ours):
    events = ours(lambda writer: writer.add_scalar("loss", float("nan"), 1))
    assert np.isnan(events["."][0].summary.value[0].simple_value)


@pytest.mark.parametrize("step", [0, 7, 1 << 40, -3, np.int64(7), torch.tensor(7), 7.9, "7", True])
def test_steps_are_those_of_torch(step, same_as_torch):
    same_as_torch(lambda writer: writer.add_scalar("loss", 0.5, step))


@pytest.mark.parametrize("step", [1 << 63, -(1 << 63) - 1])
def test_steps_of_more_than_64_bits_are_refused(step, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for value in (0.5, np.float32(0.5)):
            with pytest.raises(ValueError, match="must fit in 64 bits"):
                writer.add_scalar("loss", value, step)
        with pytest.raises(ValueError, match="must fit in 64 bits"):
            writer.add_text("text", "text", step)


@pytest.mark.parametrize("tag", [7, None, b"tag"])
def test_what_is_no_tag_is_refused(tag, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(TypeError, match="tag must be a str"):
            writer.add_scalar(tag, 0.5, 1)
        with pytest.raises(TypeError, match="tag must be a str"):
            writer.add_histogram(tag, np.ones(3), 1)


def test_times_are_given(ours):
    def add(writer):
        writer.add_scalar("a", 0.5, 1, 12.5)
        writer.add_scalar("b", np.float32(0.5), 1, walltime=7)
        writer.add_scalars("c", {"x": 1}, 1, walltime=3)

    runs = ours(add)
    assert [event.wall_time for event in runs["."]] == [12.5, 7]
    assert [event.wall_time for event in runs["c_x"]] == [3]


def test_names_and_descriptions_are_those_of_tensorboardx(same_as_tensorboardx):
    def add(writer):
        writer.add_scalar("loss", 0.5, 1, display_name="Loss", summary_description="of **all**")
        writer.add_scalar("named", np.float32(0.5), 1, display_name="Named")

    same_as_tensorboardx(add)


def test_groups_are_sub_runs_as_those_of_torch(same_as_torch):
    def add(writer):
        for step in range(3):
            writer.add_scalars("a/b", {"x": step, "y": torch.tensor(step * 0.5)}, step)
        writer.add_scalars("a/b", {"z/z": 1.0})
        writer.add_scalar("a/b", 1.0, 1)

    same_as_torch(add)


def test_a_group_keeps_its_file(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in range(5):
            writer.add_scalars("loss", {"train": step, "test": step}, step)
        assert set(writer.all_writers) == {
            str(tmp_path), f"{tmp_path}/loss_train", f"{tmp_path}/loss_test"
        }  # fmt: skip
    assert len(list((tmp_path / "loss_train").iterdir())) == 1


def test_groups_are_exported(tmp_path):
    with SummaryWriter(tmp_path / "run") as writer:
        writer.add_scalars("loss", {"train": 0.1, "test": 2}, 3, walltime=1.5)
        writer.add_scalars("loss", {"train": 0.2}, 4, walltime=2.5)
        writer.export_scalars_to_json(tmp_path / "scalars.json")
    assert json.loads((tmp_path / "scalars.json").read_text()) == {
        f"{tmp_path}/run/loss_train": [[1.5, 3, 0.1], [2.5, 4, 0.2]],
        f"{tmp_path}/run/loss_test": [[1.5, 3, 2.0]],
    }


def test_groups_in_one_directory_are_exported(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalars("a/b", {"x": 1}, 1, 1)
        writer.add_scalars("a_b", {"x": 2}, 2, 2)
        writer.add_scalar("c", 1.0)
    assert writer.scalar_dict == {f"{tmp_path}/a_b_x": [[1, 1, 1], [2, 2, 2]]}
    with SummaryWriter(tmp_path / "none", write_to_disk=False) as writer:
        writer.add_scalars("a", {"x": 1})
        assert writer.scalar_dict == {}


@pytest.mark.parametrize("value", [torch.ones(2), np.ones((2, 1)), [1.0, 2.0], np.ones(0)])
def test_more_than_one_number_is_refused_as_by_torch(value, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(AssertionError, match="must be a single number") as refused:
            writer.add_scalar("loss", value)
        assert isinstance(refused.value, ValueError)
        with pytest.raises(AssertionError):
            writer.add_scalars("loss", {"x": value})


@pytest.mark.parametrize(
    "value", [None, {"a": 1}, b"x", 1j, torch.ones((), device="meta"), object(), iter([1])]
)
def test_what_is_no_number_is_refused(value, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(NotImplementedError) as refused:
            writer.add_scalar("loss", value)
        assert isinstance(refused.value, TypeError)
        with pytest.raises(ValueError, match="value of scalar 'loss' must be a number, got 'half'"):
            writer.add_scalar("loss", "half")


@pytest.mark.parametrize(
    ("step", "error"),
    [("x", ValueError), (np.nan, ValueError), (np.inf, ValueError), ([1], TypeError)],
)
def test_what_is_no_step_is_refused(step, error, tmp_path):
    with (
        SummaryWriter(tmp_path) as writer,
        pytest.raises(error, match="global_step must be a number, got"),
    ):
        writer.add_scalar("loss", 0.5, step)


def test_what_is_no_time_is_refused(tmp_path):
    with (
        SummaryWriter(tmp_path) as writer,
        pytest.raises(ValueError, match="walltime must be a number, got 'noon'"),
    ):
        writer.add_scalar("loss", 0.5, 1, "noon")


@pytest.mark.parametrize("tag", ["", "a\0b"])
def test_any_text_is_a_tag_as_for_torch(tag, same_as_torch):
    def add(writer):
        writer.add_scalar(tag, 0.5, 1)
        writer.add_scalar(tag, torch.ones(1), 2)
        writer.add_histogram(tag, np.ones(3), 3)

    same_as_torch(add)


def test_a_group_without_names_is_refused(tmp_path):
    with (
        SummaryWriter(tmp_path) as writer,
        pytest.raises(TypeError, match=r"tag_scalar_dict must be a dict .*, got \[1, 2\]"),
    ):
        writer.add_scalars("s", [1, 2], 0)
