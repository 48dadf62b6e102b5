"""Event files: their format, writing them in the background, and reading them.

Only scalars are encoded here, column by column; ``runhooks.summary`` encodes all other kinds.
"""

from runhooks.lazy import lazily

# A program that only writes does not load the reader.
__getattr__, __dir__, __all__ = lazily(__name__)
