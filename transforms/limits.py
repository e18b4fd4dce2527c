"""Limits of what can be asked for, which the passes and who hands options to them check."""

MOST_PARTS = 1024  # of keys: every one has a tile of the output and its statistics, kept until they are merged
MOST_MULTIPROCESSORS = 2**31 - 1  # of a GPU: as many blocks as its grid may have
MOST_LANES = 2**14  # of a vector: LLVM takes minutes for a million, and counts them in 32 bits
