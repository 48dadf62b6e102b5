"""The torch engine, and the graphs of ``rh.torch`` around modules and optimizers.

- ``engine``: graphs of functions of tensors, ``rh.Graph(engine="torch")``.
- ``graph``, ``step``: ``rh.torch.Graph``, whose steps change modules and optimizers in place.
- ``objects``, ``states``: those objects, and how checkpoints hold them.
- ``capture``: parameters, gradients and activations, fetched by name.
"""
