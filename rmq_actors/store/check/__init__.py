"""Looking at a store that nobody has open: what is wrong in it, and what the next start would do about that."""
