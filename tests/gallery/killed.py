"""A program that kills itself when one of its functions is entered for the so-and-so-many-th time.

``python killed.py FUNCTION COUNT PROGRAM ARGUMENT...`` runs PROGRAM, which gets SIGKILL before the
COUNT-th call of FUNCTION, a qualified name such as ``train_step``. A generator is entered again for
each of its elements. (A profiler would find any call, and slow down all that JAX traces.)
"""

import ast
import functools
import inspect
import itertools
import os
import signal
import sys
from pathlib import Path


def struck(function):
    """Return ``function``, at a call of which the process is killed."""
    entries = itertools.count(1)

    def enter():
        if next(entries) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    def iterated(*args, **kwargs):
        enter()
        for element in function(*args, **kwargs):
            yield element
            enter()

    def called(*args, **kwargs):
        enter()
        return function(*args, **kwargs)

    is_generator = inspect.isgeneratorfunction(function)
    return functools.wraps(function)(iterated if is_generator else called)


if __name__ == "__main__":
    name, count, program = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    sys.argv = sys.argv[3:]
    sys.stdout.reconfigure(line_buffering=True)  # as where somebody reads it
    *definitions, main = ast.parse(Path(program).read_text()).body
    exec(compile(ast.Module(definitions, []), program, "exec"))
    *owner, name = name.split(".")
    owner = globals()[owner[0]] if owner else sys.modules[__name__]
    setattr(owner, name, struck(getattr(owner, name)))
    exec(compile(ast.Module([main], []), program, "exec"))
