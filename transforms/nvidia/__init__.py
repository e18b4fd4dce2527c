"""Passes for NVIDIA GPUs: `compiler/pipelines.py` has their order, docs/nvidia.md what they are for."""
