"""From ops on tiles to what one thread does, in the NVVM dialect: an emitter for each kind of op."""
