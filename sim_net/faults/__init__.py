"""Faults as values: kinds, schedules of them, how they are drawn, and the task that begins and ends them."""
