"""The jax engine, in ``engine``; ``runhooks.arrays.jax`` is the adapter of its arrays."""
