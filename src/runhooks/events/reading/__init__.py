"""Reading event files: scalars as columns, everything else when it is touched."""
