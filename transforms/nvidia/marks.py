"""Attributes by which passes tell those that follow, and emitters, what they need to know of an op."""

# Of kernels.
ALIGNED = "tile.aligned"  # which of its arguments are copies whose rows are aligned to 16 bytes
BLOCK_THREADS = "tile.threads"  # of one without tiles
PRODUCERS = "tile.producers"  # warpgroups besides those that have the tiles' rows

# Of ops.
COPY = "tile.copy"  # it copies a tensor to rows that are aligned to 16 bytes
IS_THERE = "is_there"  # of a memref.load: no index is beyond the sizes
ROUNDED = "tile.rounded"  # its result, the number of that value at first, is rounded to its type in registers, too
ASYNC = "tile.async"  # of a matmul: what follows need not wait for it
AS_STORED = "tile.as_stored"  # of an element-wise op: its elements are computed as they are stored
LIMIT = "tile.limit"  # of a sum over rows: infinite where a part of it, of a thread's columns, is not below that
ALL_WARPS = "tile.all_warps"  # of a meeting: also those of the last warpgroup that do not copy
BESIDE = "tile.beside"  # of a gpu.all_reduce: threads side by side that have so many results, each of every so many-th
EACH_THREAD = "tile.each_thread"  # of an arrival: all threads of a warp arrive, not one for the others
