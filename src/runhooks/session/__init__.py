"""Sessions: what happens around a run, a layer a file.

Users open a ``monitored`` session. A run of it goes through ``recoverable`` and ``hooked`` to
``session``, which makes it a ``BoundRun`` of ``runs``; ``recoverable`` opens the session, with the
creator and the opener of ``scaffold``.
"""
