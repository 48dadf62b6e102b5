"""The torch engine, and the graphs of ``rh.torch`` around modules and optimizers.

- ``engine``: graphs of functions of tensors, ``rh.Graph(engine="torch")``.
- ``graph``, ``step``: ``rh.torch.Graph``, whose steps change modules and optimizers in place.
- ``objects``, ``implicit_state``, ``state_dicts``: those objects, and how checkpoints hold them.
- ``forgotten``: optimizers that a step uses and the graph does not have.
- ``versions``: which tensors of modules an evaluation has changed.
- ``object_tensors``, ``capture``: parameters, gradients and activations, fetched by name.
"""
