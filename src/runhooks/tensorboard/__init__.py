"""Writers and readers with the names and methods of torch's, CLU's and TensorBoard's."""

from runhooks.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
