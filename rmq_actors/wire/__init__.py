"""Bytes to values and back: pure functions, no clock, no I/O."""
