"""``python -m runhooks.cli``."""

from runhooks.cli import main

main()
