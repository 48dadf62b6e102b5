import numpy as np
import pytest
from tensorboard.compat.proto import summary_pb2

from runhooks.summary import Summary, histogram_value, image_value, scalar_value, text_value


def parsed(summary: Summary) -> summary_pb2.Summary:
    return summary_pb2.Summary.FromString(summary.SerializeToString())


def test_a_summary_is_a_sequence_of_its_values() -> None:
    values = [scalar_value(tag, 1.0) for tag in "abc"]
    summary = Summary(values)
    assert len(summary) == 3
    assert list(summary) == values
    assert summary[1].tag == "b"
    assert [value.tag for value in summary[1:]] == ["b", "c"]
    assert repr(summary) == "Summary of ['a', 'b', 'c']"
    assert len(Summary()) == 0
    assert Summary().SerializeToString() == b""


def test_merging_keeps_order_and_matches_protobuf() -> None:
    one, two = Summary([scalar_value("a", 1.0)]), Summary([scalar_value("b", 2.0)])
    merged = Summary.merge([one, two])
    assert [(v.tag, v.simple_value) for v in parsed(merged).value] == [("a", 1.0), ("b", 2.0)]
    assert merged.SerializeToString() == one.SerializeToString() + two.SerializeToString()


def test_a_parsed_summary_has_the_same_bytes() -> None:
    images = np.zeros((2, 3, 4, 1), np.uint8)
    written = Summary(
        [scalar_value("loss", 0.5), image_value("digits", images), text_value("note", "hi")]
    )
    read = Summary.FromString(written.SerializeToString())
    assert [value.tag for value in read] == ["loss", "digits/image/0", "digits/image/1", "note"]
    assert read[0].data == 0.5
    assert parsed(Summary([read[1]])).value[0].image.width == 4
    assert read.SerializeToString() == written.SerializeToString()


def test_protobufs_summary_parses() -> None:
    value = summary_pb2.Summary.Value(tag="loss", simple_value=0.25)
    summary = Summary.FromString(summary_pb2.Summary(value=[value]).SerializeToString())
    assert [(value.tag, value.data) for value in summary] == [("loss", 0.25)]


def test_what_fails_in_a_value_names_its_tag() -> None:
    class Poisoned:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise ArithmeticError("the device is gone")

    summary = Summary([scalar_value("fine", 1.0), scalar_value("train/loss", Poisoned())])
    with pytest.raises(ArithmeticError, match="the device is gone") as raised:
        summary.SerializeToString()
    assert raised.value.__notes__ == ["while encoding the summary 'train/loss'"]


@pytest.mark.parametrize(
    "value",
    [
        lambda array: scalar_value("x", array[:1]),
        lambda array: histogram_value("x", array),
        lambda array: image_value("x", array.reshape(1, 2, 2, 1)),
    ],
)
def test_an_array_is_written_as_it_was_when_it_was_given(value):
    array = np.arange(4, dtype=np.float32)
    given, expected = Summary([value(array)]), Summary([value(array.copy())]).SerializeToString()
    array[:] = 9
    assert given.SerializeToString() == expected
