"""The loader of object code says no to what it does not know, whatever the bytes."""

import contextlib
import ctypes
import os

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.runtime import cpu, elf
from attn_opt.compiler.runtime.signature import Dimensions, Signature, Slot
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

LIBRARIES = cpu.symbol_sources()


@pytest.fixture(scope="module")
def image():
    os.environ["ATTN_OPT_CACHE"] = "0"  # a kernel that was loaded has no object file any more
    try:
        return compile(
            "func.func @f(%a: f64) -> f64 { %r = math.sin %a : f64  return %r : f64 }"
        )._runtime.object_file()
    finally:
        del os.environ["ATTN_OPT_CACHE"]


def test_code_runs(image):
    slot = Slot("f64", None)
    kernel = cpu.CpuKernel.load(image, Signature("f", (slot,), (slot,), Dimensions([], [])))
    assert kernel(0.5) == np.sin(0.5)


def test_symbols_that_are_nowhere(image):
    assert image.count(b"\0sin\0") == 1
    with pytest.raises(elf.LoadError, match="symbol nix is nowhere"):
        elf.load(image.replace(b"\0sin\0", b"\0nix\0"), LIBRARIES)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", bytes(64), b"MZ" * 100])
def test_no_object_file(data):
    with pytest.raises(elf.LoadError):
        elf.load(data, [ctypes.CDLL(None)])


@examples(150)
@given(st.data())
def test_damage_is_an_error_or_harmless_until_run(image, data):
    at = data.draw(st.integers(0, len(image) - 1))
    damaged = bytearray(image)
    damaged[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(elf.LoadError):
        elf.load(bytes(damaged[: data.draw(st.integers(len(image) // 2, len(image)))]), LIBRARIES)
