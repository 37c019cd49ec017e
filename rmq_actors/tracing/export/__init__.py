"""Runs in the formats of other programs: ShiViz's logs and the JSON that Perfetto's page opens."""
