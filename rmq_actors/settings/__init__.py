"""Settings: RocketMQ's properties to the fields of attrs classes and back, and what is said of a key that is wrong.

Pure: no I/O. The classes themselves stand where they are used (`store/config.py`, `broker/config.py` and others).
"""
