"""Of a kernel's tiles: where they are (layouts), and in what order, and by which warps, they are computed."""
