"""The format of event files."""
