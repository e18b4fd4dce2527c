"""Attributes of functions' arguments. Read where kernels are called, too, which needs no bindings."""

WRITABLE = "bufferization.writable"  # true: the argument is donated, and its memory may be written to
