"""Ops on tiles as vectors in registers: packing, micro-kernels, and how far ahead memory is asked."""
