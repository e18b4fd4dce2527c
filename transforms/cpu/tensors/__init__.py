"""Before there are buffers: what loops and their tiles are, and in which order the dimensions of tiles lie."""
