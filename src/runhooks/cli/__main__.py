"""``python -m runhooks.cli``: the command where no ``runhooks`` is on the path."""

from runhooks.cli import main

main()
