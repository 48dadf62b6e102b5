"""Writing event files."""
