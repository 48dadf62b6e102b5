"""The torch engine, and the graphs of ``rh.torch`` around modules and optimizers."""
