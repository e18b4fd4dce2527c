"""JAX: functions that ``jax.jit`` traces, by way of StableHLO, and kernels that are called while it traces."""
