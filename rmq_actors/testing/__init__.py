"""What users import in their tests: scenarios in a simulated world, the invariants, the bugs that must be found."""
