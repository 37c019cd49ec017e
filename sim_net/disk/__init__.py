"""The simulated disk: directories, page cache, what a sync makes durable, and what a power cut leaves."""
