"""The hooks that come with runhooks. A program loads those that it uses."""

from runhooks.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
