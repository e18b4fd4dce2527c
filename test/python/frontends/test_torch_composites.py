"""What torch makes of its composite ops for a decomposition is the same whether it makes it or we put it in place."""

import functools
from contextlib import AbstractContextManager

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from attn_opt.compiler.frontends.torch import composites  # noqa: E402
from torch._subclasses import fake_impls  # noqa: E402
from torch.export import exported_program  # noqa: E402

RULES, _ = exported_program._split_decomp_table_to_cia_and_python_decomp({})


def state() -> dict:
    return {op: (dict(op.py_kernels), fake_impls.op_implementations_dict.get(op)) for op in RULES}


def described() -> dict:
    """The state by what functions are called: torch makes new ones each time."""

    def name(function: object) -> object:
        function = function.func if isinstance(function, functools.partial) else function
        return getattr(function, "__qualname__", function)

    return {op: ({k: name(f) for k, f in kernels.items()}, name(fake)) for op, (kernels, fake) in state().items()}


def raise_in(block: AbstractContextManager) -> None:
    with block:
        raise ZeroDivisionError


def test_as_torch_does() -> None:
    for _ in range(2):  # for the first time torch finds rules of its own for fake tensors, which it forgets
        with exported_program._override_composite_implicit_decomp(RULES):
            expected = described()
    before = state()
    with composites.prepared_once():
        for _ in range(2):  # what torch makes, then what is put in place
            with exported_program._override_composite_implicit_decomp(RULES):
                assert described() == expected
                assert state() != before
            assert state() == before
    assert len(composites._prepared) >= len(RULES)


def test_after_an_error() -> None:
    before = state()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), composites.prepared_once():
            raise_in(exported_program._override_composite_implicit_decomp(RULES))
        assert state() == before
    assert exported_program._override_composite_implicit_decomp is composites._override


def test_a_function_that_is_registered_later() -> None:
    """An op that has got another function since is prepared again."""
    op = torch.ops.aten.linear.default
    with composites.prepared_once():
        with exported_program._override_composite_implicit_decomp(RULES):
            pass
        key = torch._C.DispatchKey.AutogradMPS
        assert key not in op.py_kernels
        op.py_impl(key)(torch.nn.functional.linear)
        try:
            with exported_program._override_composite_implicit_decomp(RULES):
                assert op.py_kernels[key] is torch.nn.functional.linear
            assert op.py_kernels[key] is torch.nn.functional.linear
        finally:
            del op.py_kernels[key]
            op._dispatch_cache.clear()
