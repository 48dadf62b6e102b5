"""Reading event files."""
