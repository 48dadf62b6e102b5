"""The life cycle of hooks: which methods are called, and when. The only place that says it.

The test suite compares ``LIFE_CYCLE`` with recorded sessions on every engine. Each line is a name
and the events it stands for, in order; a name from a line above stands for that whole line. The
lines before the empty line are phases, those after it whole life cycles.

``each:`` calls the method of every hook, in the order in which the hooks were given; hooks whose
``first`` is true come before all others, those whose ``last`` is true after them. ``until:`` calls
it up to the hook that raises, ``begun:`` for the hooks whose ``begin`` has returned. A hook that
says when it is next due (``SessionRunHook.next_due``) is not called in the runs until then.

    open        The session is made. ``begin`` may add to the default graph; after it the scaffold
                makes the graph final, and adding to it raises RuntimeError.
    run         One call of ``run``: the fetches of the caller and of all hooks go into one
                session-run.
    bad-run     The session-run raises: no hook's ``after_run`` is called.
    recovery    The session is lost: a new one is created, restored from the latest checkpoint.
    end         The ``with`` block ended well, by OutOfRangeError or StopIteration, or ``close`` was
                called. ``end`` of every hook is called, even if another raises.
    failure     The ``with`` block ended by any other exception: no ``end``.
    raises      The exception goes on to the caller.

    stop-by-hook        A hook called ``run_context.request_stop()``, which only makes
                        ``should_stop()`` true; ``stop-by-caller``: the caller called
                        ``session.request_stop()``.
    thread-raises       A thread under the coordinator failed: ``should_stop()`` is true, and
                        ``run``, ``close`` and the end of the ``with`` block raise it.
    lost-in-a-run       The session is replaced and the run repeated; the same happens if a hook
                        finds the session lost, in ``before_run`` or ``after_run``.
    lost-in-creation    A session is lost, and the first attempt to create another fails too.
    lost-at-the-start   The first attempt of all to create a session fails.
    lost-for-good       One failure more than the ``RecoveryPolicy`` allows (two here), without a
                        step in between.
"""

from __future__ import annotations

LIFE_CYCLE = """
open      each:begin  finalize-graph  create-session  each:after_create_session
run       each:before_run  session-run  each:after_run
bad-run   each:before_run  session-run
recovery  close-session  create-session  each:after_create_session
end       each:end  close-session
failure   each:on_exception  close-session  raises

clean-end                     open  run  run  end
stop-by-hook                  open  run  end
stop-by-caller                open  run  end
end-of-input                  open  run  bad-run  end
run-raises                    open  bad-run  failure
begin-raises                  until:begin  begun:on_exception  raises
after_create_session-raises   each:begin  finalize-graph  create-session  until:after_create_session  close-session  each:on_exception  raises
before_run-raises             open  until:before_run  failure
after_run-raises              open  each:before_run  session-run  until:after_run  failure
end-raises                    open  run  end  raises
thread-raises                 open  run  failure
lost-in-a-run                 open  bad-run  recovery  run  end
lost-in-before_run            open  until:before_run  recovery  run  end
lost-in-after_run             open  each:before_run  session-run  until:after_run  recovery  run  end
lost-in-creation              open  bad-run  close-session  create-session  create-session  each:after_create_session  run  end
lost-in-after_create_session  each:begin  finalize-graph  create-session  until:after_create_session  recovery  run  end
lost-at-the-start             each:begin  finalize-graph  create-session  create-session  each:after_create_session  run  end
lost-for-good                 open  bad-run  recovery  bad-run  recovery  bad-run  failure
"""  # noqa: E501
