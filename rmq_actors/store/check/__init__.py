"""Looking at a store that nobody has open: what is wrong in it, and what the next start would do about that.

The checks have their own copies of the byte layouts in `store/files/formats.py`, on purpose: they must notice if the
store writes something else than the formats say.
"""
