"""``python -m runhooks.cli``: the command where ``runhooks`` is not on the path."""

from runhooks.cli import main

main()
