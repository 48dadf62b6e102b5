"""The life cycle of hooks: who is called, when, and who is not. The only place that says it.

``LIFE_CYCLE`` is read by the test suite, which holds it against recorded sessions on every engine.
A line is a happening and the calls it makes, in order. ``each:`` calls the method on every hook,
in the order in which the hooks were given; a hook whose ``last`` is true comes after all others. A
hook that says when it is next due (``SessionRunHook.next_due``) sleeps through the runs until then.

    open        The session is made. ``begin`` may add to the default graph; after it the graph is
                final, and adding to it raises RuntimeError.
    run         One call of ``run``: what the caller and all hooks ask for is fetched in one
                session-run.
    run-raises  The session-run raised: no hook's ``after_run`` is called.
    lost        The session was lost in a run: it is closed, a new one is created, restored from the
                latest checkpoint, and the run is repeated.
    close       The ``with`` block ended well, by OutOfRangeError or StopIteration, or ``close`` was
                called.
    failed      The ``with`` block ended by any other exception, which propagates: no ``end``.
"""

from __future__ import annotations

LIFE_CYCLE = """
open       each:begin  finalize-graph  create-session  each:after_create_session
run        each:before_run  session-run  each:after_run
run-raises each:before_run  session-run
lost       each:before_run  session-run  close-session  create-session  each:after_create_session  each:before_run  session-run  each:after_run
close      each:end  close-session
failed     each:on_exception  close-session
"""  # noqa: E501
