"""Writes at places that only the GPU knows, as loops over updates: kernels for NVIDIA GPUs, without a GPU."""

import math
from unittest import mock

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.transforms.nvidia.kernels import element_pieces, scatters_to_linalg
from gpu_modules import Launches, lowered, run
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

COMBINE = {None: lambda old, new: new, "addf": np.add, "maximumf": np.maximum, "subf": np.subtract}


def scatter(shape, window, batches, count, combine):
    """@main(%a, %at, %u): windows of %u, of so many entries for each of the batches (the first dimension, if there are
    any), are put into %a, or combined with what is there, at %at; those that do not fit are left out."""
    whole, rank = f"tensor<{'x'.join(map(str, shape))}xf32>", len(shape)
    first = 1 if batches else 0
    part = "x".join(map(str, [*window[first:], "f32"]))
    lead, one = ([batches] if batches else []), ["%b"] if batches else []
    updates = f"tensor<{'x'.join(map(str, [*lead, count, *window[first:], 'f32']))}>"
    at_kind = f"tensor<{'x'.join(map(str, [*lead, count, rank - first]))}xi64>"
    sizes = ", ".join(map(str, [*[1] * first, *window[first:]]))
    steps = ", ".join(["1"] * rank)
    offsets = ", ".join([*one, *(f"%o{d}" for d in range(first, rank))])
    of_update = ", ".join([*one, "%n", *["0"] * (rank - first)])
    update_sizes = ", ".join(["1"] * (first + 1) + [str(w) for w in window[first:]])
    update = f"[{of_update}] [{update_sizes}] [{', '.join(['1'] * (rank + 1))}] : {updates}"
    places = "\n".join(
        f"""    %d{d} = arith.constant {d - first} : index
    %p{d} = tensor.extract %at[{", ".join([*one, "%n", f"%d{d}"])}] : {at_kind}
    %o{d} = arith.index_cast %p{d} : i64 to index
    %s{d} = arith.constant {shape[d] - window[d]} : index
    %l{d} = arith.cmpi sge, %o{d}, %c0 : index
    %h{d} = arith.cmpi sle, %o{d}, %s{d} : index
    %i{d} = arith.andi %l{d}, %h{d} : i1
    %f{d} = arith.andi {f"%f{d - 1}" if d > first else "%true"}, %i{d} : i1"""
        for d in range(first, rank)
    )
    new = "%x"
    combined = ""
    if combine is not None:
        dims = ", ".join(f"i{d}" for d in range(first, rank))
        identity = f"affine_map<({dims}) -> ({dims})>"
        kinds = ", ".join(['"parallel"'] * (rank - first))
        combined = f"""
      %old = tensor.extract_slice %out[{offsets}] [{sizes}] [{steps}] : {whole} to tensor<{part}>
      %e = tensor.empty() : tensor<{part}>
      %new = linalg.generic {{indexing_maps = [{identity}, {identity}, {identity}], iterator_types = [{kinds}]}}
          ins(%old, %x : tensor<{part}>, tensor<{part}>) outs(%e : tensor<{part}>) {{
      ^bb0(%p: f32, %q: f32, %_: f32):
        %y = arith.{combine} %p, %q : f32
        linalg.yield %y : f32
      }} -> tensor<{part}>"""
        new = "%new"
    loop = f"""
  {"%r" if not batches else "%inner"} = scf.for %n = %c0 to %count step %one
      iter_args(%out = {"%a" if not batches else "%all"}) -> ({whole}) {{
{places}
    %w = scf.if %f{rank - 1} -> ({whole}) {{
      %x = tensor.extract_slice %u{update} to tensor<{part}>{combined}
      %y = tensor.insert_slice {new} into %out[{offsets}] [{sizes}] [{steps}] : tensor<{part}> into {whole}
      scf.yield %y : {whole}
    }} else {{
      scf.yield %out : {whole}
    }}
    scf.yield %w : {whole}
  }}"""
    if batches:
        loop = f"""
  %batches = arith.constant {batches} : index
  %r = scf.for %b = %c0 to %batches step %one iter_args(%all = %a) -> ({whole}) {{{loop}
    scf.yield %inner : {whole}
  }}"""
    return f"""
func.func @main(%a: {whole}, %at: {at_kind}, %u: {updates}) -> {whole} {{
  %c0 = arith.constant 0 : index
  %one = arith.constant 1 : index
  %true = arith.constant true
  %count = arith.constant {count} : index{loop}
  return %r : {whole}
}}"""


def by_hand(a, at, u, window, batches, combine):
    found = a.copy()
    for b in range(batches or 1):
        target = found[b] if batches else found
        sizes = window[1:] if batches else window
        for n in range(at.shape[-2]):
            place, update = (at[b, n], u[b, n]) if batches else (at[n], u[n])
            if all(0 <= o <= s - w for o, s, w in zip(place, target.shape, sizes, strict=True)):
                where = tuple(slice(o, o + w) for o, w in zip(place, sizes, strict=True))
                target[where] = COMBINE[combine](target[where], update)
    return found


@st.composite
def scatters(draw):
    rank = draw(st.integers(1, 3))
    shape = [draw(st.integers(1, 7)) for _ in range(rank)]
    batches = shape[0] if rank > 1 and draw(st.booleans()) else 0
    are_elements = draw(st.booleans())
    window = [1 if are_elements or (batches and d == 0) else draw(st.integers(1, size)) for d, size in enumerate(shape)]
    return shape, window, batches, draw(st.integers(1, 9)), draw(st.sampled_from(list(COMBINE)))


@examples(40)
@given(scatters(), st.sampled_from(["sm_90a", "sm_80"]), *[st.booleans()] * 2, st.integers(0, 1000))
def test_any(drawn, arch, searched, by_pieces, seed):
    """`searched`: for the last write of each place, if it may be, or for the first one and the next ones; `by_pieces`:
    threads have several elements of a row, where its length is a multiple of two."""
    shape, window, batches, count, combine = drawn
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(shape, np.float32)
    lead, rest = ([batches], shape[1:]) if batches else ([], shape)
    at = rng.integers(-1, np.array(rest) + 1, (*lead, count, len(rest)))
    u = rng.standard_normal((*lead, count, *window[1 if batches else 0 :]), np.float32)
    with (
        mock.patch.object(scatters_to_linalg, "WORTH_A_LAUNCH", -math.inf if searched else math.inf),
        mock.patch.object(element_pieces, "THREADS", 1 if by_pieces else math.inf),
    ):
        (found,) = run(lowered(scatter(*drawn), arch=arch), [a, at, u])
    np.testing.assert_array_equal(found, by_hand(a, at, u, window, batches, combine))
    is_searched = searched and max(count, batches) > 1 and (combine is None or all(w == 1 for w in window))
    assert len(Launches.kernels) in ((1,) if not is_searched else (2,) if combine is None else (2, 3))


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_reach_machine_code(arch):
    assert compile(scatter([8, 16], [1, 16], 0, 3, "addf"), target="nvidia", arch=arch).ir("ptx")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_many_sums_are_searched_for(arch):
    """By several threads each: of 4096 elements, and of 1500 updates."""
    with mock.patch.object(scatters_to_linalg, "WORTH_A_LAUNCH", -math.inf):
        kernel = compile(scatter([64, 64], [1, 1], 0, 1500, "addf"), target="nvidia", arch=arch)
    assert kernel.ir("layouts").count("gpu.subgroup_reduce minsi") == 2 and "shfl" in kernel.ir("ptx")
