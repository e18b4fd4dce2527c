"""Passes for NVIDIA GPUs, by the stage that they make: `compiler/pipelines.py` has their order, docs/nvidia.md the why.

``kernels/``: a graph with loops over tiles becomes kernels and their launches. ``schedule/``: where tiles are, when and
by which warps they are computed. ``code/``: what one thread does. Here: what the stages share, and what is chosen
before there are loops (tile sizes, versions of functions).
"""
