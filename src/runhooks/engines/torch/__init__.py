"""The torch engine, and the graphs of ``rh.torch``."""
