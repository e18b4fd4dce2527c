"""Target-independent passes on fused loop nests."""
