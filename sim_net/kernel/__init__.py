"""The event loop of a world: its clock, the order of tasks, what programs must not do, the digest of a run."""
