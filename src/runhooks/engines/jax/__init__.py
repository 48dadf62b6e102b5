"""The jax engine."""
