"""The backend of ``torch.compile``: attention of a graph goes to us, everything else stays with torch."""

from .entry import backend

__all__ = ["backend"]
