"""Runs upon runs: search for a failing seed, shrink its schedule, compare two runs, cancel at every checkpoint."""
