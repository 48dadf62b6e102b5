import numpy as np
import pytest
from tensorboard.compat.proto import summary_pb2

from runhooks.summary import Summary, image_value, scalar_value, text_value


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
    merged = Summary.merge([summary, Summary(values[:1])])
    assert [value.tag for value in merged] == ["a", "b", "c", "a"]


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


def test_what_fails_in_a_value_names_its_tag() -> None:
    class Poisoned:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise ArithmeticError("the device is gone")

    summary = Summary([scalar_value("fine", 1.0), scalar_value("train/loss", Poisoned())])
    with pytest.raises(ArithmeticError, match="the device is gone") as raised:
        summary.SerializeToString()
    assert raised.value.__notes__ == ["while encoding the summary 'train/loss'"]
