"""The python engine."""
