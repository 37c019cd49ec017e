"""Turns RocketMQ's properties into fields of attrs classes, and back, and says what is wrong with a key.

Pure: no I/O. The classes themselves stand where they are used (`store/config.py`, `broker/config.py` and others).
"""
