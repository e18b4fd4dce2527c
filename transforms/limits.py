"""Limits of what can be asked for, which the passes and who hands options to them check."""

MOST_PARTS = 1024  # of keys: every one has a tile of the output and its statistics, kept until they are merged
