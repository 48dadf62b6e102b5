"""A program that kills itself when one of its functions is entered for the so-and-so-many-th time.

``python killed.py FUNCTION COUNT PROGRAM ARGUMENT...`` runs PROGRAM, which gets SIGKILL before the
COUNT-th call of FUNCTION, a qualified name such as ``train_step``. A generator is entered again for
each of its elements.
"""

import os
import runpy
import signal
import sys


def strike(frame, event, argument):
    global entered
    code = frame.f_code
    if event == "call" and code.co_qualname == function and code.co_filename == program:
        entered += 1
        if entered == count:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    function, count, program = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    entered = 0
    sys.argv = sys.argv[3:]
    sys.setprofile(strike)
    runpy.run_path(program, run_name="__main__")
