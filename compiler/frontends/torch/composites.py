"""What torch does anew for each of its 500 ops that are made of others, whenever it decomposes a program, done once.

Twice in each decomposition torch gives all of these ops ("composite") some 20 new functions, and takes them back after
it; before, it looks for their names in each of 27 namespaces. That took longer than all else there is to do for a small
function.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch._export.utils
import torch.export.exported_program
from torch._subclasses import fake_impls

Kernels = dict[Any, Callable]

# As they are outside of all blocks, of which threads may have several; None in a version of torch without them.
_find_ops: Any = getattr(torch._export.utils, "_materialize_cpp_cia_ops", None)
_override: Any = getattr(torch.export.exported_program, "_override_composite_implicit_decomp", None)
_fake_rules: Any = getattr(fake_impls, "op_implementations_dict", None)


class _Prepared(NamedTuple):
    """An op's functions by dispatch key, as they were given and as made of them, and the one for fake tensors."""

    given: Kernels
    made: Kernels
    fake: Callable


_prepared: dict[tuple[Any, Callable], _Prepared] = {}  # by the op and the rule that it is decomposed by


@contextlib.contextmanager
def prepared_once() -> Iterator[None]:
    """Within the block, torch finds composite ops once, and prepares each for a decomposition once in this process."""
    with contextlib.ExitStack() as patches:
        if _find_ops is not None:
            patches.enter_context(_patched(torch._export.utils, _find_ops, functools.cache(_find_ops)))
        if _override is not None and _fake_rules is not None:
            patches.enter_context(_patched(torch.export.exported_program, _override, _overridden))
        yield


@contextlib.contextmanager
def _patched(module: Any, function: Any, by: Callable) -> Iterator[None]:
    setattr(module, function.__name__, by)
    try:
        yield
    finally:
        setattr(module, function.__name__, function)


@contextlib.contextmanager
def _overridden(rules: dict[Any, Callable]) -> Iterator[None]:
    """torch's context, in which each op is decomposed by its rule, or kept; with what it made of an op before."""
    found = {op: _prepared.get((op, rule)) for op, rule in rules.items() if op not in _fake_rules}
    known = {op: prepared for op, prepared in found.items() if prepared and prepared.given == op.py_kernels}
    new = {op: rule for op, rule in rules.items() if op not in known}
    given = {op: dict(op.py_kernels) for op in new if op not in _fake_rules}
    with _override(new):
        for op, kernels in given.items():
            _prepared[op, new[op]] = _Prepared(kernels, dict(op.py_kernels), _fake_rules[op])
        for op, prepared in known.items():
            _replace(op, prepared.made)
            _fake_rules[op] = prepared.fake
        try:
            yield
        finally:
            for op, prepared in known.items():
                _replace(op, prepared.given)
                del _fake_rules[op]


def _replace(op: Any, kernels: Kernels) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()
