"""Bytes at rest: the commit log, its recovery, its flush services, and the puts that wait for them.

`MessageStore` is the one writer of the log. The log itself is passive; anyone may call its reads.
"""
