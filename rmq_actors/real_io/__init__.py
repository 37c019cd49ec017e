"""The ports on the real machine. Imported by composition roots alone: `embedding`, `testing` and `cli`."""
