"""Where tiles are: scratch and arguments; loops over parts of buffers, and which of them are parallel."""
