"""Reads: messages by queue offset, by time and by key, and records by their place in the log."""
