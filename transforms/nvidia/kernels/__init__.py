"""From a graph with loops over tiles to kernels and their launches: what is computed where. Tiles get static shapes."""
