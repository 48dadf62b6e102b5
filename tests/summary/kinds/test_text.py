import numpy as np
import pytest
from tensorboard.plugins.text import metadata
from tensorboard.util.tensor_util import make_ndarray

from runhooks.summary import Summary, text_value


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("**grüße**", ()),
        (b"bytes", ()),
        ("", ()),
        (["one", "three"], (2,)),
        (np.array([["a", "b"], ["c", "d"], ["e", "f"]]), (3, 2)),
        ([], (0,)),
    ],
)
def test_tensorboard_reads_it(accumulate, text: object, shape: tuple[int, ...]) -> None:
    accumulator = accumulate(text_value("note", text))
    (event,) = accumulator.Tensors("note")
    array = make_ndarray(event.tensor_proto)
    assert (event.step, array.shape) == (7, shape)
    expected = [part if isinstance(part, bytes) else part.encode() for part in np.ravel(text)]
    assert array.ravel().tolist() == expected
    plugin = accumulator.SummaryMetadata("note").plugin_data.plugin_name
    assert plugin == metadata.PLUGIN_NAME


@pytest.mark.parametrize("text", [3, None, ["a", 1.5], [["a", "b"], ["c"]]])
def test_what_is_no_text_is_refused(text: object) -> None:
    with pytest.raises((TypeError, ValueError), match="text summary 'note' must be made of str"):
        Summary([text_value("note", text)]).SerializeToString()
