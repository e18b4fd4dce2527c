"""The extents of tensors as index forms, read off the ops that make them; nothing is built."""

from __future__ import annotations

from ...dialects.mlir import ir
from ...dialects.tiling import Index
from ...dialects.tiling.index import reify_dim
from ..linear import DYNAMIC, linear


def extent(value: ir.Value, d: int) -> Index | None:
    """Dimension `d` of `value`; None if it is dynamic and no op says it."""
    try:
        return _Reader().dim(value, d)
    except _Unknown:
        return None


class _Unknown(Exception):
    pass


class _Reader:
    """Stands in for a TileBuilder where `reify_dim` asks for the extents of operands."""

    def dim(self, value: ir.Value, d: int) -> Index:
        size = value.type.shape[d]
        if size != DYNAMIC:
            return Index(size)
        if isinstance(value.owner, ir.Block):
            return self._of_argument(value, d)
        found = reify_dim(self, value.owner.operation, value, d)
        if found is None:
            raise _Unknown
        # `linear` sees through affine.apply, so that forms which mean the same compare equal.
        return sum((linear(v).scaled(c) for v, c in found.terms), Index(found.const))

    def _of_argument(self, value: ir.Value, d: int) -> Index:
        """Loops carry tensors of the extents that they start from."""
        loop = value.owner.owner.operation
        if loop.name == "scf.for" and value.arg_number > 0:
            return self.dim(loop.operands[2 + value.arg_number], d)
        if loop.name == "scf.forall":
            shared = value.arg_number - (len(value.owner.arguments) - len(loop.results))
            if shared >= 0:
                return self.dim(loop.operands[len(loop.operands) - len(loop.results) + shared], d)
        raise _Unknown
