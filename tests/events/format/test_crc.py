import google_crc32c
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runhooks.events.format.record import contributions, crc32c, masked


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_byte_contributes_what_its_place_and_value_say(
    content: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(content) - 1))
    without = content[:at] + b"\0" + content[at + 1 :]
    added = int(contributions(len(content) - 1 - at)[content[at]])
    assert crc32c(without) ^ added == google_crc32c.value(content)


def test_a_mask_is_that_of_tfrecord_files() -> None:
    # A length and its check, of a record that TensorFlow wrote.
    assert masked(crc32c(bytes.fromhex("3e00000000000000"))) == 0xE740D2D9
    crcs = np.array([0, 1, 0xFFFFFFFF], np.uint32)
    assert masked(crcs).tolist() == [masked(crc) for crc in crcs.tolist()]
