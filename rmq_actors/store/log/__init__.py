"""The commit log: appended to by one writer, walked from its first byte to its end, flushed by one service."""
