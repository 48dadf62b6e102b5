"""How arrays of NumPy, JAX, PyTorch, TensorFlow and others are read and kept."""

from runhooks.arrays.array_library import ArrayLibrary, Packed
from runhooks.arrays.registry import library_of, register
from runhooks.arrays.values import host_form, is_array, snapshot, to_numpy

__all__ = [
    "ArrayLibrary",
    "Packed",
    "host_form",
    "is_array",
    "library_of",
    "register",
    "snapshot",
    "to_numpy",
]
