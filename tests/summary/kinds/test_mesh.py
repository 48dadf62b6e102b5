import numpy as np
import pytest
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.mesh import summary as theirs
from tensorboard.util.tensor_util import make_ndarray

from tests.summary.conftest import Late

rng = np.random.default_rng(0)
VERTICES = rng.normal(size=(2, 5, 3)).astype(np.float32)
COLORS = rng.integers(0, 256, (2, 5, 3)).astype(np.uint8)
FACES = rng.integers(0, 5, (2, 4, 3)).astype(np.int32)
CONFIG = {"material": {"cls": "PointsMaterial", "size": 0.1}, "camera": {"fov": 75}}


def arrays(values: list[summary_pb2.Summary.Value]) -> dict[str, list[object]]:
    return {value.tag: make_ndarray(value.tensor).tolist() for value in values}


@pytest.mark.parametrize(
    ("colors", "faces", "config"),
    [(None, None, None), (COLORS, None, CONFIG), (COLORS, FACES, None)],
)
def test_it_is_tensorboards_message(writer, colors, faces, config) -> None:
    writer.mesh("bunny", VERTICES, 1, colors, faces, config)
    expected = theirs.pb("bunny", VERTICES, faces=faces, colors=colors, config_dict=config)
    expected = summary_pb2.Summary.FromString(expected.SerializeToString()).value
    assert [v.tag for v in writer.values] == [v.tag for v in expected]
    assert [v.metadata.plugin_data for v in writer.values] == [
        v.metadata.plugin_data for v in expected
    ]
    assert arrays(writer.values) == arrays(expected)


def test_a_vertex_that_is_nowhere_is_put_on_another(
    writer, caplog: pytest.LogCaptureFixture
) -> None:
    vertices = np.array([[[0, np.nan, 0], [1, 2, 3], [4, np.inf, 6]], [[np.nan] * 3] * 3])
    for step in range(2):
        writer.mesh("cloud", vertices, step)
    assert arrays(writer.values) == {"cloud_VERTEX": [[[1, 2, 3]] * 3, [[0, 0, 0]] * 3]}
    assert [record.getMessage() for record in caplog.records] == [
        "mesh 'cloud' has 10 NaN and 1 infinite values, put on another vertex (said once for a tag)"
    ]


def test_another_shape_is_refused(writer) -> None:
    for shape in ((5, 2), (3,), (1, 1, 5, 3)):
        with pytest.raises(ValueError, match="bunny_VERTEX.* shape"):
            writer.mesh("bunny", np.zeros(shape), 1)


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"colors": COLORS[:, :3]}, ValueError, "bunny_COLOR.*vertices of"),
        ({"colors": COLORS[:1]}, ValueError, "bunny_COLOR.*vertices of"),
        ({"colors": COLORS * 1j}, TypeError, "bunny_COLOR.*real numbers"),
        ({"faces": FACES[:1]}, ValueError, "bunny_FACE.*vertices of"),
    ],
)
def test_parts_that_do_not_fit_are_refused(writer, parts, error, message) -> None:
    with pytest.raises(error, match=message):
        writer.mesh("bunny", VERTICES, 1, **parts)
    ((name, array),) = parts.items()
    writer.mesh("bunny", VERTICES, 1, **{name: Late(array)})
    with pytest.raises(error, match=message):
        _ = writer.values


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"colors": COLORS.astype(np.int64) + 300}, "bunny_COLOR.*0 to 255"),
        ({"colors": np.where(COLORS.max() == COLORS, np.nan, COLORS)}, "bunny_COLOR.*0 to 255"),
        ({"faces": FACES + 3}, "bunny_FACE.*0 to 4, got 3 to 7"),
        ({"faces": FACES - 1}, "bunny_FACE.*0 to 4, got -1 to 3"),
    ],
)
def test_numbers_beyond_their_range_are_refused(writer, parts, message) -> None:
    writer.mesh("bunny", VERTICES, 1, **parts)
    with pytest.raises(ValueError, match=message):
        _ = writer.values


@pytest.mark.parametrize("config", ["x", {"a": object()}, {1}])
def test_what_is_no_config_is_refused_at_once(writer, config) -> None:
    with pytest.raises(TypeError, match="config"):
        writer.mesh("bunny", VERTICES, 1, config=config)


def test_lists_floats_and_a_single_mesh_will_do(writer, caplog: pytest.LogCaptureFixture) -> None:
    colors, faces = (COLORS[0] / 2).astype(np.float16), FACES[0] * 1.0
    writer.mesh("bunny", VERTICES[0].tolist(), 1, colors, faces)
    assert arrays(writer.values) == {
        "bunny_VERTEX": VERTICES[:1].tolist(),
        "bunny_FACE": FACES[:1].tolist(),
        "bunny_COLOR": (COLORS[:1] / 2).tolist(),
    }
    assert caplog.records == []


def test_colors_that_are_black_in_tensorboard_are_warned_of(
    writer, caplog: pytest.LogCaptureFixture
) -> None:
    for step in range(2):
        writer.mesh("dark", VERTICES, step, COLORS / 255)
    assert arrays(writer.values)["dark_COLOR"] == (COLORS / 255).astype(np.float32).tolist()
    (said,) = [record.getMessage() for record in caplog.records]
    assert "'dark' has colors of at most 0.937255, which TensorBoard shows as black" in said
