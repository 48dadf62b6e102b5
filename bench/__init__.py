"""What runhooks costs, beside its peers, in one run: ``make bench``, or ``python -m bench``."""
