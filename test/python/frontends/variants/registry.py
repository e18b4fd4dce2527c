"""Where ways of writing attention are put down."""

import torch

VARIANTS, GROUPED = {}, set()
LOWEST = torch.finfo(torch.float32).min


def variant(function):
    VARIANTS[function.__name__] = function
    return function


def grouped(function):
    GROUPED.add(function.__name__)
    return variant(function)


def ids(q, k):
    """Row and column numbers."""
    return torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
