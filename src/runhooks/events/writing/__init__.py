"""Writing event files in the background."""
