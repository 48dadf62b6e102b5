"""``CommandError``: a command line that cannot be carried out."""


class CommandError(Exception):
    """Its text is printed after the name of the command, which then ends with status 2."""
