"""``SummaryReader``: ours beside tbparse's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import tbparse
import tensorflow as tf
from torch.utils.tensorboard import SummaryWriter as TorchWriter

from runhooks.events import SessionLog, SessionStatus
from runhooks.summary import FileWriter
from runhooks.tensorboard import SummaryReader, SummaryWriter

# tbparse calls pandas as older versions had it.
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")

TYPES = ["scalars", "tensors", "histograms", "images", "audio", "hparams", "text"]
EXTRA = {
    "none": set(),
    "times": {"wall_time"},
    "folders": {"dir_name"},
    "all": {
        *("dir_name", "file_name", "wall_time", "min", "max", "num", "sum", "sum_squares"),
        *("width", "height", "content_type", "length_frames", "sample_rate"),
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    for number, make in enumerate((TorchWriter, SummaryWriter)):
        with make(str(folder / "torch" / f"run{number}")) as writer:
            for step in range(4):
                writer.add_scalar("loss", step / 3 + number, step)
                writer.add_scalar("twice", step, step // 2)
                writer.add_scalars("group", {"a": step, "b": -step}, step)
                writer.add_histogram("weights", rng.normal(size=50), step)
                writer.add_image("image", rng.random((3, 4, 5)), step)
                writer.add_audio("sound", rng.random(30) - 0.5, step, 8000)
                writer.add_text("text", f"step {step}", step)
            writer.add_scalar("nan", float("nan"), 1)
            writer.add_hparams({"lr": 0.1, "name": "adam"}, {"accuracy": 0.5}, run_name="hparams")
    with tf.summary.create_file_writer(str(folder / "tensorflow")).as_default():
        for step in range(3):
            tf.summary.scalar("loss", step / 3, step)
            tf.summary.text("text", "some text", step)
            tf.summary.histogram("weights", rng.normal(size=50), step)
    (folder / "notes.txt").write_text("not an event file")
    return folder


@pytest.mark.parametrize("extra", EXTRA)
@pytest.mark.parametrize("pivot", [False, True], ids=["long", "wide"])
@pytest.mark.parametrize("place", ["torch", "torch/run0", "tensorflow", "."])
def test_frames_are_those_of_tbparse(place, pivot, extra, folder):
    arguments = {"pivot": pivot, "extra_columns": EXTRA[extra]}
    ours = SummaryReader(str(folder / place), **arguments)
    theirs = tbparse.SummaryReader(str(folder / place), **arguments)
    for event_type in TYPES:
        expected, found = getattr(theirs, event_type), getattr(ours, event_type)
        same(found, expected)


def same(found, expected):
    assert list(found.columns) == list(expected.columns)
    assert len(found) == len(expected)
    assert found.dtypes.astype(str).to_dict() == expected.dtypes.astype(str).to_dict()
    for name in expected.columns:
        for ours, theirs in zip(found[name], expected[name], strict=True):
            assert isinstance(ours, list) is isinstance(theirs, list)
            np.testing.assert_equal(in_order(ours), in_order(theirs))


def in_order(cell):
    """Values at one step are in any order in tbparse's lists, in that of the files in ours."""
    return sorted(cell, key=str) if isinstance(cell, list) else cell


def test_tags_and_children_are_those_of_tbparse(folder):
    ours, theirs = SummaryReader(str(folder)), tbparse.SummaryReader(str(folder))
    expected = {kind: sorted(tags) for kind, tags in theirs.tags.items()}
    assert {kind: sorted(tags) for kind, tags in ours.tags.items()} == expected
    assert ours.get_tags("scalars") == ours.tags["scalars"]
    assert ours.children.keys() == theirs.children.keys()
    assert repr(ours) == repr(theirs)
    child = ours["torch"]["run0"]
    assert child.log_path == f"{folder}/torch/run0"
    same(child.scalars, theirs["torch"]["run0"].scalars)


def test_one_file_is_read(folder):
    (path,) = (folder / "torch" / "run0").glob("*tfevents*")
    for extra in (set(), {"dir_name", "file_name"}):
        ours = SummaryReader(str(path), extra_columns=extra)
        same(ours.scalars, tbparse.SummaryReader(str(path), extra_columns=extra).scalars)


def test_a_link_to_a_folder_that_it_is_in_is_not_followed(tmp_path):
    with FileWriter(tmp_path / "a" / "b") as writer:
        writer.scalar("loss", 1.0, 1)
    (tmp_path / "a" / "b" / "loop").symlink_to(tmp_path / "a")
    (tmp_path / "latest").symlink_to("a")
    found = SummaryReader(str(tmp_path), extra_columns={"dir_name"})
    assert sorted(found.scalars["dir_name"]) == ["a/b", "latest/b"]


def test_only_the_wanted_types_are_read(folder):
    ours = SummaryReader(str(folder / "torch"), event_types={"scalars"})
    assert not ours.scalars.empty
    assert ours.tags["histograms"] == []
    with pytest.raises(ValueError, match="'images' was left out"):
        ours.get_events("images")
    with pytest.raises(ValueError, match="must be one of"):
        ours.get_events("graphs")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"extra_columns": ["wall_time"]}, ValueError),
        ({"extra_columns": {"time"}}, KeyError),
        ({"event_types": ["scalars"]}, ValueError),
        ({"event_types": {"graphs"}}, KeyError),
    ],
)
def test_other_arguments_are_refused_as_by_tbparse(arguments, error, folder):
    for make in (SummaryReader, tbparse.SummaryReader):
        with pytest.raises(error):
            make(str(folder), **arguments)


def test_nothing_is_refused_or_empty(tmp_path):
    with pytest.raises(ValueError, match="got"):
        SummaryReader(str(tmp_path / "none"))
    assert SummaryReader(str(tmp_path)).scalars.empty
    assert isinstance(SummaryReader(tmp_path, pivot=True).images, pd.DataFrame)


LIMITS = np.array([-2.0, -1.0, -0.05, -0.05, 0.5, 3.0])
COUNTS = np.array([0.0, 3.0, 2.0, 4.0, 0.0, 6.0])


def test_distributions_are_those_of_tbparse():
    x = np.array([-3.0, -2.0, -1.5, -1.0, -0.2, 0.25, 1.0, 3.0, 4.0])
    ours = SummaryReader.histogram_to_cdf(COUNTS, LIMITS, x)
    np.testing.assert_allclose(ours, tbparse.SummaryReader.histogram_to_cdf(COUNTS, LIMITS, x))
    found = SummaryReader.histogram_to_pdf(COUNTS, LIMITS, x)
    np.testing.assert_allclose(found, tbparse.SummaryReader.histogram_to_pdf(COUNTS, LIMITS, x))
    with pytest.raises(ValueError, match="ascending"):
        SummaryReader.histogram_to_cdf(COUNTS, LIMITS, [1, 0])
    with pytest.raises(ValueError, match="one length"):
        SummaryReader.histogram_to_cdf(COUNTS[1:], LIMITS, x)


@pytest.mark.parametrize("bounds", [(-2, 3), (-1.55, 1.1), (-10, 10), (5, 6), (None, None), (2, 2)])
@pytest.mark.parametrize("n_bins", [1, 7, 30])
def test_bins_are_those_of_tbparse(bounds, n_bins):
    ours = SummaryReader.histogram_to_bins(COUNTS, LIMITS, *bounds, n_bins)
    theirs = tbparse.SummaryReader.histogram_to_bins(COUNTS, LIMITS, *bounds, n_bins)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_the_first_count_is_zero():
    with pytest.raises(ValueError, match="first of counts must be 0"):
        SummaryReader.histogram_to_bins([1, 2], [0, 1])


def test_tensors_are_what_tbparse_makes_of_them(tmp_path):
    rng = np.random.default_rng(0)
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        tf.summary.histogram("histogram", rng.normal(size=50), 1)
        for count in (1, 2):
            tf.summary.image(f"image{count}", rng.random((count, 3, 4, 3)), 1)
            tf.summary.audio(f"audio{count}", rng.random((count, 9, 1), np.float32), 8000, 1)
    frame = SummaryReader(tmp_path).tensors.set_index("tag")["value"]
    for name, function in (
        ("histogram", "tensor_to_histogram"),
        ("histogram", "buckets_to_histogram_dict"),
        *((f"image{count}", "tensor_to_image") for count in (1, 2)),
        *((f"audio{count}", "tensor_to_audio") for count in (1, 2)),
    ):
        ours = getattr(SummaryReader, function)(frame[name])
        np.testing.assert_equal(ours, getattr(tbparse.SummaryReader, function)(frame[name]))


def test_animations_are_frames(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_video("video", np.arange(3 * 4, dtype=np.uint8).reshape(1, 3, 1, 2, 2) * 20)
    (frames,) = SummaryReader(tmp_path).images["value"]
    assert frames[..., 0].tolist() == (np.arange(12).reshape(3, 2, 2) * 20).tolist()


def test_a_tag_whose_points_a_restart_dropped_has_no_rows(tmp_path):
    with FileWriter(tmp_path) as writer:
        for tag in ("gone", "stays"):
            writer.scalar(tag, 1.0, 5)
            writer.text(f"{tag}/text", "text", 5)
        writer.add_session_log(SessionLog(SessionStatus.START), 3)
        writer.scalar("stays", 2.0, 3)
        writer.text("stays/text", "text", 3)
    reader = SummaryReader(tmp_path)
    assert reader.scalars["tag"].tolist() == ["stays"]
    assert reader.text["tag"].tolist() == ["stays/text"]
