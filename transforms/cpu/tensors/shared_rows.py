"""The rows that all contractions of a parallel loop share: the queries of attention."""

import math
from collections import Counter
from collections.abc import Sequence

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tiling.structured import indexing_maps, iterator_types
from ...linear import upper_bound
from ...reshapes import RESHAPES
from ...rewriting import defining_op, through
from .dimension_classes import Dim, DimensionClasses


def is_contraction(generic: ir.Operation) -> bool:
    return len(generic.operands) > len(generic.results) + 1 and "reduction" in iterator_types(generic)


def shared_rows(classes: DimensionClasses, many: int, few: int) -> list[Dim]:
    """The class of dimensions to be innermost, if one has `many` rows; else those that have `few` or more together."""
    found = _reused_in_all(classes)
    fitting = [c for c in found if (row_extent(classes, c) or many) >= many]
    if fitting:
        return fitting if len(fitting) == 1 else []
    extents = {c: row_extent(classes, c) or 1 for c in found}
    return [c for c in found if extents[c] > 1] if few <= math.prod(extents.values()) < many else []


def streamed_columns(classes: DimensionClasses, rows: Sequence[Dim], unit: str) -> Dim | None:
    """The class along which one contraction has columns, and another one sums up: keys, if they and the values suit few
    rows as lanes. Their rows follow each other in memory, values are contiguous along another class than this, and keys
    are multiplied as they stand, without a conversion for each broadcast."""
    columns: dict[Dim, ir.Value] = {}
    summed: dict[Dim, ir.Value] = {}
    for generic in filter(is_contraction, classes.generics):
        kinds = iterator_types(generic)
        others = [v for v in generic.operands if all(classes.position(v, c) is None for c in rows)]
        for loop, class_ in classes.loop_classes(generic).items() if len(others) == 1 else []:
            (columns if kinds[loop] == "parallel" else summed)[class_] = others[0]
    found = [c for c in summed if c in columns and classes.position(columns[c], c) is not None]
    if len(found) != 1:
        return None
    (class_,) = found
    keys, values = columns[class_], summed[class_]
    is_last = classes.position(values, class_) == values.type.rank - 1
    are_spread = any(is_spread(v, classes.position(v, class_)) for v in (keys, values))
    element = keys.type.element_type
    is_direct = not build.is_narrow(element) or (unit == "dot" and isinstance(element, ir.BF16Type))
    return class_ if is_direct and not is_last and not are_spread else None


def is_spread(value: ir.Value, position: int | None) -> bool:
    """True if steps along that dimension of a tile go over more than the tile has in them."""
    if position is None or position == value.type.rank - 1:
        return False
    made, size = defining_op(through(value, *RESHAPES)), value.type.shape[position]
    if made is None or made.name != "tensor.extract_slice":
        return False
    sizes, whole = list(made.attributes["static_sizes"]), made.operands[0].type.shape
    first = sizes.index(size) if size in sizes else 0
    return list(whole[first + 1 :]) != sizes[first + 1 :]


def cut_rows(classes: DimensionClasses) -> Dim | None:
    """The class of shared rows of which not every tile has as many, if there is one."""
    cut = [c for c in _reused_in_all(classes) if _is_dynamic(classes, c)]
    return cut[0] if len(cut) == 1 else None


def _reused_in_all(classes: DimensionClasses) -> list[Dim]:
    """The classes along which every contraction reads the same elements of an input again. If there are none, the one
    along which most do, while the others sum up along it: the lanes of these are columns."""
    contractions = [generic for generic in filter(is_contraction, classes.generics) if len(generic.operands) == 3]
    reused = [_reused_along(generic, classes) for generic in contractions]
    counts = Counter(c for some in reused for c in some)
    in_all = [c for c, count in counts.items() if count == len(contractions)]
    if in_all:
        return in_all
    summed = [summed_along(generic, classes) for generic in contractions]
    fitting = [c for c in counts if all(c in some or c in sums for some, sums in zip(reused, summed, strict=True))]
    return [max(fitting, key=lambda c: counts[c])] if fitting else []


def _is_dynamic(classes: DimensionClasses, class_: Dim) -> bool:
    places = [(v, classes.position(v, class_)) for generic in classes.generics for v in generic.operands]
    return any(d is not None and v.type.is_dynamic_dim(d) for v, d in places)


def _reused_along(generic: ir.Operation, classes: DimensionClasses) -> list[Dim]:
    """The classes of the parallel loops along which the op reads the same elements of an input again."""
    kinds = iterator_types(generic)
    maps = indexing_maps(generic)[: len(generic.operands) - len(generic.results)]
    return [
        class_
        for loop, class_ in classes.loop_classes(generic).items()
        if kinds[loop] == "parallel" and any(not _uses(m, loop) for m in maps)
    ]


def summed_along(generic: ir.Operation, classes: DimensionClasses) -> list[Dim]:
    """The classes of the loops that the op sums up along."""
    kinds = iterator_types(generic)
    return [class_ for loop, class_ in classes.loop_classes(generic).items() if kinds[loop] == "reduction"]


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
    kinds = iterator_types(generic)
    return is_contraction(generic) and any(kinds[d] == "parallel" and not _uses(map_, d) for d in range(map_.n_dims))
