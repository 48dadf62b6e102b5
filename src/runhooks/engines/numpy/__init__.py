"""The python engine, in ``engine``: functions of NumPy, or of anything else, called one by one."""
