"""Event files: writing and reading them; ``runhooks.summary`` encodes all kinds but scalars."""

from runhooks.lazy import lazily

# A program that only writes does not load the reader.
__getattr__, __dir__, __all__ = lazily(__name__)
