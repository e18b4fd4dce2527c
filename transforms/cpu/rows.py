"""The rows that all contractions of a parallel loop share: the queries of attention."""

from ...dialects.mlir import ir
from ...dialects.tiling.structured import indexing_maps
from ..linear import upper_bound
from ..rewriting import defining_op
from .dimension_classes import Dim, DimensionClasses


def is_contraction(generic: ir.Operation) -> bool:
    return len(generic.operands) > len(generic.results) + 1 and any(
        "reduction" in str(t) for t in generic.attributes["iterator_types"]
    )


def shared_rows(classes: DimensionClasses, least: int) -> Dim | None:
    """The class of dimensions to be innermost, if there is one of so many rows."""
    fitting = [c for c in _reused_in_all(classes) if (row_extent(classes, c) or least) >= least]
    return fitting[0] if len(fitting) == 1 else None


def cut_rows(classes: DimensionClasses) -> Dim | None:
    """The class of shared rows of which not every tile has as many, if there is one."""
    cut = [c for c in _reused_in_all(classes) if _is_dynamic(classes, c)]
    return cut[0] if len(cut) == 1 else None


def _reused_in_all(classes: DimensionClasses) -> list[Dim]:
    """The classes along which every contraction reads the same elements of an input again."""
    candidates: dict[Dim, None] | None = None
    for generic in filter(is_contraction, classes.generics):
        if len(generic.operands) == 3:
            reused = _reused_along(generic, classes)
            candidates = {c: None for c in (reused if candidates is None else candidates) if c in reused}
    return list(candidates or ())


def _is_dynamic(classes: DimensionClasses, class_: Dim) -> bool:
    places = [(v, classes.position(v, class_)) for generic in classes.generics for v in generic.operands]
    return any(d is not None and v.type.is_dynamic_dim(d) for v, d in places)


def _reused_along(generic: ir.Operation, classes: DimensionClasses) -> list[Dim]:
    """The classes of the parallel loops along which the op reads the same elements of an input again."""
    kinds = [str(t) for t in generic.attributes["iterator_types"]]
    maps = indexing_maps(generic)[: len(generic.operands) - len(generic.results)]
    return [
        class_
        for loop, class_ in classes.loop_classes(generic).items()
        if "parallel" in kinds[loop] and any(not _uses(m, loop) for m in maps)
    ]


def _uses(map_: ir.AffineMap, loop: int) -> bool:
    return any(e == ir.AffineExpr.get_dim(loop) for e in map_.results)


def row_extent(classes: DimensionClasses, class_: Dim) -> int | None:
    """How far tiles reach along the class, at most, as the results of the region's ops tell."""
    for generic in classes.generics:
        for value in generic.operands:
            d = classes.position(value, class_)
            if d is None:
                continue
            if not value.type.is_dynamic_dim(d):
                return value.type.get_dim_size(d)
            made = defining_op(value)
            if made is not None and made.name == "tensor.empty":
                before = sum(value.type.is_dynamic_dim(i) for i in range(d))
                return upper_bound(made.operands[before])
    return None


def reads_again(generic: ir.Operation, map_: ir.AffineMap) -> bool:
    """True if a contraction reads the elements of the input with this map more than once."""
    kinds = [str(t) for t in generic.attributes["iterator_types"]]
    return is_contraction(generic) and any("parallel" in kinds[d] and not _uses(map_, d) for d in range(map_.n_dims))
