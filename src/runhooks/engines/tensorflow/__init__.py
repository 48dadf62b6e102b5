"""The TensorFlow engine: a graph is a ``tf.Graph``, a raw session a ``tf.compat.v1.Session``.

- ``engine``: TensorFlow's errors, log, memory and traces of runs.
- ``graph``: a ``tf.Graph`` as hooks and session layers see it.
- ``opener``: how its sessions are created and restored.
- ``session``, ``session_state``: its sessions, ours and those that TensorFlow made; the datasets
  and queues that a run draws from.
- ``fetches``: a run as a cached callable; the global step, read in the run that changes it.
- ``files``: one event file for a directory, whoever writes there; the states of hooks, beside
  TensorFlow's own files.
"""
