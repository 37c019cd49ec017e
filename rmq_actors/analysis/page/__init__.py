"""The pieces of the report page: SVG, numbers for readers, the charts, and its style and script beside them."""
