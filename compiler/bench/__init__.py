"""Measuring kernels against the machine and against other implementations of attention; see docs/benchmarks.md."""
