"""Passes for NVIDIA GPUs, in the order of the pipeline.

| pass | from | to |
| --- | --- | --- |
| fuse-consumers | element-wise ops after a loop over tiles | in the loop, on the tile |
| outline-kernels | scf.forall over tiles of tensors | gpu.func on memrefs; tiles of static shape, loads, stores |
| assign-layouts | tiles | tiles whose types say where their elements are; `tile.convert_layout` |
| stage-loads | tiles loaded to shared memory | asynchronous copies to buffers, ahead of their use; barriers |
| tiles-to-nvvm | all of that | registers of one thread: llvm, nvvm, arith, scf |
"""
