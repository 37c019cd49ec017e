"""Answers from traces: Spark jobs over the files that runs leave, and a page that shows them. Never a live node."""
