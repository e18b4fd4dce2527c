"""Passes for CPUs, by what they work on: `compiler/pipelines.py` has their order, docs/cpu.md what they are for.

``tensors/``: loops over tiles, and how the dimensions of tiles lie. ``buffers/``: where tiles are, and which loops are
parallel. ``vectors/``: ops on tiles as vectors in registers. ``code/``: instructions, and functions for tasks. Here:
what the stages share, and what is chosen before there are loops (tile sizes, versions for few queries).
"""
