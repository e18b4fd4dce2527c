"""The pass ``fold-diag``."""

from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir
from ..passes import Pass
from ..rewriting import defining_op, erase_if_unused, ops_in

MATMULS = ("linalg.matmul", "linalg.batch_matmul", "linalg_ext.batch_matmul")


@dataclass(frozen=True)
class FoldDiag(Pass):
    """Turns diag(s) × X into a scaling of the rows of X; 2·m·n operations in place of 2·m·m·n::

        %d = linalg_ext.diag ins(%s : tensor<4xf32>) outs(%e : tensor<4x4xf32>) : tensor<4x4xf32>
        %0 = linalg.fill ins(%zero : f32) outs(%f : tensor<4x32xf32>) -> tensor<4x32xf32>
        %r = linalg.matmul ins(%d, %x : tensor<4x4xf32>, tensor<4x32xf32>) outs(%0 : tensor<4x32xf32>)
    becomes
        %r = linalg.generic … ins(%s : tensor<4xf32>) outs(%x : tensor<4x32xf32>) { ^bb0(%a, %b): yield %a * %b }

    X is the destination, so that an accumulator is rescaled where it stands. Where the init of the product is not
    zero, it is added. Off the diagonal, 0 × inf is taken to be 0.
    """

    def run(self, op: ir.Operation) -> None:
        for matmul in ops_in(op, *MATMULS):
            diag = diag_factor(matmul)
            if diag is not None:
                _fold(matmul, diag)


def diag_factor(matmul: ir.Operation) -> ir.Operation | None:
    """The linalg_ext.diag that is the left operand."""
    diag = defining_op(matmul.operands[0])
    if diag is None or diag.name != "linalg_ext.diag" or len(matmul.results) != 1:
        return None
    if matmul.name == "linalg_ext.batch_matmul":  # diag is symmetric: a transposed left operand is the same
        return diag
    return diag if _has_default_maps(matmul) else None


def _has_default_maps(matmul: ir.Operation) -> bool:
    """linalg's named matmuls may carry maps of a transposed operand; ours are those without."""
    if "indexing_maps" not in matmul.attributes:
        return True
    rank = matmul.results[0].type.rank
    batch, (m, n, k) = list(range(rank - 2)), range(rank - 2, rank + 1)
    plain = [build.projection(rank + 1, [*batch, *dims]) for dims in ([m, k], [k, n], [m, n])]
    return [a.value for a in matmul.attributes["indexing_maps"]] == plain


def _fold(matmul: ir.Operation, diag: ir.Operation) -> None:
    s, x, init = diag.operands[0], matmul.operands[1], matmul.operands[2]
    out = matmul.results[0].type
    n = out.rank
    identity, rows = build.projection(n, range(n)), build.projection(n, range(n - 1))
    x_map = identity
    if matmul.name == "linalg_ext.batch_matmul" and matmul.attributes["layout"].value[1] == "t":
        x_map = build.projection(n, [*range(n - 2), n - 1, n - 2])
    element, compute = out.element_type, build.compute_type(out.element_type)

    def product(a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.mulf(build.convert(a, compute), build.convert(b, compute))

    with ir.InsertionPoint(matmul), matmul.location:
        parallel = [build.PARALLEL] * n
        if build.zero_filled(init) and x_map == identity and x.type == out:
            (result,) = build.generic(
                [s], [x], [rows, identity], parallel, lambda a, b: build.convert(product(a, b), element)
            )
        elif build.zero_filled(init):
            (result,) = build.generic(
                [s, x],
                [build.empty(build.mixed_sizes(init), element)],
                [rows, x_map, identity],
                parallel,
                lambda a, b, _: build.convert(product(a, b), element),
            )
        else:
            (result,) = build.generic(
                [s, x],
                [init],
                [rows, x_map, identity],
                parallel,
                lambda a, b, c: build.convert(arith.addf(build.convert(c, compute), product(a, b)), element),
            )
    matmul.results[0].replace_all_uses_with(result)
    matmul.erase()
    erase_if_unused(diag)
