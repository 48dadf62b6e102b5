"""Numbers: ours beside torch's and tensorboardX's."""

from __future__ import annotations

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


def test_scalars_are_those_of_torch(same_as_torch):
    def add(writer):
        for name, value in NUMBERS.items():
            writer.add_scalar(name, value, 3)
            writer.add_scalar(f"{name} without a step", value)
            writer.add_scalar(f"{name} new", value, 4, new_style=True)
            writer.add_scalar(f"{name} double", value, 5, new_style=True, double_precision=True)
            writer.add_scalar(f"{name} ignored", value, 5, double_precision=True)

    same_as_torch(add)


def test_steps_and_tags_are_those_of_torch(same_as_torch):
    def add(writer):
        for step in (0, 7, 1 << 40, -3, np.int64(7), torch.tensor(7), 7.9, "7", True):
            writer.add_scalar("loss", 0.5, step)
        for tag in ("", "a\0b"):
            writer.add_scalar(tag, 0.5, 1)
            writer.add_histogram(tag, np.ones(3), 3)

    same_as_torch(add)


def test_what_is_no_step_tag_or_time_is_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in (1 << 63, -(1 << 63) - 1):
            for value in (0.5, np.float32(0.5)):
                with pytest.raises(ValueError, match="must fit in 64 bits"):
                    writer.add_scalar("loss", value, step)
            with pytest.raises(ValueError, match="must fit in 64 bits"):
                writer.add_text("text", "text", step)
        for wrong in ("x", np.nan, np.inf, [1]):
            with pytest.raises((ValueError, TypeError), match="global_step must be a number, got"):
                writer.add_scalar("loss", 0.5, wrong)
        with pytest.raises(ValueError, match="walltime must be a number, got 'noon'"):
            writer.add_scalar("loss", 0.5, 1, "noon")
        for tag in (7, None, b"tag"):
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


def test_what_is_not_one_number_is_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for value in (torch.ones(2), np.ones((2, 1)), [1.0, 2.0], np.ones(0)):
            with pytest.raises(ValueError, match="must be a single number"):
                writer.add_scalar("loss", value)
            with pytest.raises(ValueError, match="must be a single number"):
                writer.add_scalars("loss", {"x": value})
        for value in (None, {"a": 1}, b"x", 1j, torch.ones((), device="meta"), iter([1])):
            with pytest.raises(TypeError, match="'loss'"):
                writer.add_scalar("loss", value)
        with pytest.raises(ValueError, match="value of scalar 'loss' must be a number, got 'half'"):
            writer.add_scalar("loss", "half")
        with pytest.raises(TypeError, match=r"tag_scalar_dict must be a dict .*, got \[1, 2\]"):
            writer.add_scalars("s", [1, 2], 0)
