"""A put: checked, encoded, appended, and answered once what was promised has happened."""
