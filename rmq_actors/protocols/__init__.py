"""Decisions as pure machines: events in, effects out, time an argument. No Trio, no clock, no I/O.

The actors in `store` and `ha` are the thin drivers of these machines.
"""
