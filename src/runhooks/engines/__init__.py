"""What executes graphs: ``engine`` is the seam, and others are the engines of a framework each."""

from runhooks.engines.engine import Engine, load_engine

__all__ = ["Engine", "load_engine"]
