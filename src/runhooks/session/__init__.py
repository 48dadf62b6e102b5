"""Sessions: what happens around a run, a layer a file, as ``docs/architecture.md`` shows."""
