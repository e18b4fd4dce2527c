"""Choosing a schedule by measuring: what may be tried, the process that measures, the search, what it found on disk.

`compile(…, autotune=True)` and ``attn-bench --autotune`` come here; the folders of passes know nothing of it.
"""
