import google_crc32c
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runhooks.events.crc import crc32c, crc32c_rows, masked


@given(st.integers(0, 40), st.integers(0, 40), st.data())
def test_rows_have_the_crcs_that_they_have_one_by_one(
    count: int, length: int, data: st.DataObject
) -> None:
    content = data.draw(st.binary(min_size=count * length, max_size=count * length))
    rows = np.frombuffer(content, np.uint8).reshape(count, length)
    assert crc32c_rows(rows).tolist() == [google_crc32c.value(row.tobytes()) for row in rows]


def test_rows_that_go_beyond_a_block_and_differ_in_a_few_bytes() -> None:
    rows = np.zeros((20_000, 12), np.uint8)
    rows[:, 3] = 7
    rows[:, 5] = np.arange(20_000) % 251
    rows[15_000:, 9] = 1
    assert crc32c_rows(rows).tolist() == [google_crc32c.value(row.tobytes()) for row in rows]


def test_a_mask_is_that_of_tfrecord_files() -> None:
    # A length and its check, of a record that TensorFlow wrote.
    assert masked(crc32c(bytes.fromhex("3e00000000000000"))) == 0xE740D2D9
    crcs = np.array([0, 1, 0xFFFFFFFF], np.uint32)
    assert masked(crcs).tolist() == [masked(crc) for crc in crcs.tolist()]
