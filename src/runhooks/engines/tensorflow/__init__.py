"""The TensorFlow engine: a graph is a ``tf.Graph``, a raw session a ``tf.compat.v1.Session``."""
