"""Where summaries go other than into an event file."""
