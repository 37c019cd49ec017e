"""Events of a run: the one event type, recording, and trace files."""
