"""The TensorFlow engine: a graph is a ``tf.Graph``, a raw session a ``tf.compat.v1.Session``.

``graph`` says what session layers ask of a graph, ``session`` makes runs by cached callables,
``launcher`` and ``session_manager`` create sessions, ``scaffolding`` says what a scaffold has by
default. Only files here import TensorFlow.
"""
