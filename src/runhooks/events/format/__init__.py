"""The format of event files: records, and the Protocol Buffers messages in them."""
