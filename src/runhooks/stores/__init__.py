"""Object stores such as S3, for run directories."""

from runhooks.stores.backend import Buffer, StoredObject
from runhooks.stores.store import RetryPolicy, Store, default_policy, open_store, set_retry_policy
from runhooks.stores.urls import is_url, joined, normal, scheme_of, without_file_scheme

__all__ = [
    "Buffer",
    "RetryPolicy",
    "Store",
    "StoredObject",
    "default_policy",
    "is_url",
    "joined",
    "normal",
    "open_store",
    "scheme_of",
    "set_retry_policy",
    "without_file_scheme",
]
