"""Where a kernel's tiles are (layouts), and in which order, and by which warps, they are computed."""
