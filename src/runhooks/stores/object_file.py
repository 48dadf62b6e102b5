"""``ObjectFile``: an object of a store as a file."""

from collections.abc import Callable

from fsspec.spec import AbstractBufferedFile


class ObjectFile(AbstractBufferedFile):  # type: ignore[misc] # fsspec has no types
    """The first ``size`` bytes of an object; ``ahead_bytes`` more than asked for are read at once.

    ``read`` may return only some of the first bytes.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int, ahead_bytes: int) -> None:
        self._fetch_range = read
        super().__init__(None, "", block_size=ahead_bytes, size=size)
