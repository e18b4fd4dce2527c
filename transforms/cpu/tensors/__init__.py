"""Before there are buffers: the loops over tiles, what is fused into them, and how the dimensions of tiles lie."""
