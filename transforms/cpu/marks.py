"""Attributes by which passes tell those that follow what they need to know."""

DONATED = "linalg_ext.donated"  # of an argument: its memory may be written to, and returned
ROUNDED_FIRST = "linalg_ext.rounded_first"  # on a product: it is rounded before it is added to anything
