"""The files of a checkpoint, each compared with what the manifest says of it."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping

import google_crc32c

from runhooks.checkpoint import arrays
from runhooks.checkpoint.arrays import Entry
from runhooks.checkpoint.manifest import MANIFEST, ArraySpec, FileDigest
from runhooks.checkpoint.reading import opened, printable
from runhooks.contexts import contextmanager
from runhooks.errors import DataLossError, NotFoundError
from runhooks.stores.path import AnyPath, StorePath

#: Errors of this process. To go on from an older checkpoint because of them would lose steps.
NOT_OF_THE_FILE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def read_file(path: AnyPath, name: str, expected: FileDigest) -> bytes:
    """Return the content of the file ``name`` of the checkpoint ``path``.

    Raises:
        NotFoundError: There is no such checkpoint.
        DataLossError: The file is missing, damaged, or cannot be read.
    """
    with naming(path, name):
        data = _content(path / name, expected)
        check_sum(google_crc32c.value(data), expected.crc32c)
        return data


def _content(path: AnyPath, expected: FileDigest) -> bytes:
    if isinstance(path, StorePath):
        data = path.read_bytes()
        check_size(len(data), expected)
        return data
    with opened(path) as (file, size):
        check_size(size, expected)
        return file.read(size)


def _is_there(path: AnyPath) -> bool:
    """Whether there is a checkpoint, if a damaged one."""
    return (path / MANIFEST).is_file() if isinstance(path, StorePath) else path.is_dir()


def check_arrays(
    path: AnyPath, name: str, expected: FileDigest, specs: Mapping[str, ArraySpec] | None = None
) -> Mapping[str, Entry]:
    """Check a file of arrays piece by piece; return what it holds.

    Raises as ``read_file`` does.
    """
    with naming(path, name), opened(path / name) as (file, size):
        check_size(size, expected)
        header = arrays.header_of(file, size)
        crc = arrays.skip(file, size - len(header), google_crc32c.value(header))
        check_sum(crc, expected.crc32c)
        return arrays.read_header(header, size, specs)


def check_size(size: int, expected: FileDigest) -> None:
    """Raise ValueError unless a file has the size that it should have."""
    if size != expected.size:
        raise ValueError(f"it has {size} bytes and should have {expected.size}")


def check_sum(crc: int, expected: int) -> None:
    """Raise ValueError unless a checksum is the one that was recorded."""
    if crc != expected:
        raise ValueError("its checksum does not match its content")


@contextmanager
def naming(path: AnyPath, name: str) -> Iterator[None]:
    """Turn what is wrong with the file ``name`` of a checkpoint into an error that says so."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        if _is_there(path):
            raise damaged(path, f"{name} is missing") from None
        raise NotFoundError(f"there is no checkpoint {printable(path)}", path=str(path)) from None
    except OSError as error:
        # What a store holds is not damaged because the store cannot be reached.
        if error.errno in NOT_OF_THE_FILE or isinstance(path, StorePath):
            raise
        raise damaged(path, f"{name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise damaged(path, f"{name}: {error}") from error


def damaged(path: AnyPath, what: str) -> DataLossError:
    """Return the error that says what is wrong with the checkpoint ``path``."""
    return DataLossError(f"checkpoint {printable(path)} is damaged: {what}", path=str(path))
