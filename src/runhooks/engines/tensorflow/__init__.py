"""The TensorFlow engine: a graph is a ``tf.Graph``, a raw session a ``tf.compat.v1.Session``.

- ``engine``: TensorFlow's errors, log, memory and traces of runs.
- ``graph``: a ``tf.Graph`` as hooks and session layers see it.
- ``opener``: how its sessions are created and restored.
- ``session``, ``session_state``: its sessions, ours and those that TensorFlow made.
- ``fetches``: a run as a cached callable, and the global step read in the run that changes it.
- ``files``: TensorFlow's checkpoints, with the states of hooks beside them, and its event files.
"""
