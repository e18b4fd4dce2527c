"""What vectors become: instructions for functions and narrow types, functions for tasks, loops for LLVM."""
