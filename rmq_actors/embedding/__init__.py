"""Whole brokers inside another program: composition roots on real ports and files."""
