"""The tables and figures of the FUR paper, made from any run: one small module each, listed in `registry.py`."""
