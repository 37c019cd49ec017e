"""One question per module: plain functions from DataFrames to DataFrames, without a session, a path or a setting.

Every result row names the events it rests on, as `exemplars`: (run_id, seq) of the trace.
"""
