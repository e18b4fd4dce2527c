"""The pass ``scans-to-linalg``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from ....dialects import build
from ....dialects.build import PARALLEL, REDUCTION
from ....dialects.mlir import ir
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...copying import copy_elements, in_loops
from ...extents import extent, size_form
from ...passes import Pass
from ...rewriting import (
    defining_op,
    erase_dead,
    for_body,
    for_inits,
    functions_of,
    is_made_inside,
    ops_in,
    ops_of,
    single_use,
)
from ...slices import extract, slice_offsets, slice_parts, slice_sizes, split

Elements: TypeAlias = "dict[tuple[ir.Value, ir.AffineMap], ir.Value]"  # of tensors, by where they are


@dataclass(frozen=True)
class ScansToLinalg(Pass):
    """Makes a linalg.generic of a loop over slices that computes element by element, such as a running sum::

        %r:2 = scf.for %j = 0 to %n step 1 iter_args(%out = %e, %sum = %zeros) -> (tensor<?x?xf32>, tensor<?xf32>) {
          %x = tensor.extract_slice %a[0, %j] [%m, 1] [1, 1] : tensor<?x?xf32> to tensor<?xf32>
          %s = linalg.generic {iterator_types = ["parallel"]} ins(%x, %sum) { addf } -> tensor<?xf32>
          %o = tensor.insert_slice %s into %out[0, %j] [%m, 1] [1, 1]
          scf.yield %o, %s
        }
      becomes
        %r:2 = linalg.generic {indexing_maps = [(i, j) -> (i, j), (i, j) -> (i), (i, j) -> (i, j)],
                               iterator_types = ["parallel", "reduction"]} ins(%a) outs(%zeros, %e) {
          ^bb0(%x, %sum, %_):
            %s = arith.addf %x, %sum
            linalg.yield %s, %s
        }

    ``outline-elements`` makes a kernel of it, with a thread for each %i that goes through the slices. What a loop
    carries is either taken from slice to slice, or put together of slices, which nothing reads before the end.
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            block = function.regions[0].blocks[0]
            loops = [o for o in ops_of(block) if o.name == "scf.for"]
            for loop in loops:
                scan = _Scan(loop)
                if scan.is_one():
                    with ir.InsertionPoint(loop), loop.location:
                        scan.replace()
            if loops:
                erase_dead(block)


@dataclass
class _Scan:
    """`states`: numbers of what the loop carries from slice to slice; `collected`: of what it puts together, with the
    slices; `dim`: the dimension of these that it goes along; `inputs`: the elements of what it reads."""

    loop: ir.Operation
    states: list[int] = field(default_factory=list)
    collected: dict[int, ir.Value] = field(default_factory=dict)
    dim: int = -1
    inputs: Elements = field(default_factory=dict)

    def __post_init__(self) -> None:
        body = for_body(self.loop)
        self.induction, *self.carried = body.arguments
        self.yielded = list(ops_of(body)[-1].operands)

    def is_one(self) -> bool:
        lower, _, step = list(self.loop.operands)[:3]
        if build.constant_value(lower) != 0 or build.constant_value(step) != 1:
            return False
        for number, (argument, value) in enumerate(zip(self.carried, self.yielded, strict=True)):
            part = self._collected(argument, value)
            if part is None:
                self.states.append(number)
            else:
                self.collected[number] = part
        kinds = [v.type for v in self._wanted()]
        if not self.collected or not all(isinstance(kind, ir.RankedTensorType) for kind in kinds):
            return False
        self.rank = kinds[-1].rank
        self.of_state = build.projection(self.rank + 1, range(self.rank))
        same = all(kind.shape == kinds[-1].shape for kind in kinds)
        return same and all(self._reaches(value, self.of_state) for value in self._wanted())

    def replace(self) -> None:
        inits, order = for_inits(self.loop), [*self.states, *self.collected]
        maps = [m for _, m in self.inputs]
        maps += [self.of_state] * len(self.states) + [self._with_dim(self.of_state)] * len(self.collected)

        def body(*scalars: ir.Value) -> list[ir.Value]:
            self.inputs = dict(zip(self.inputs, scalars, strict=False))
            states = scalars[len(self.inputs) :]
            known = {(self.carried[i], self.of_state): x for i, x in zip(self.states, states, strict=False)}
            return [self._element(value, self.of_state, known) for value in self._wanted()]

        ins = [self._all_slices(value) for value, _ in self.inputs]
        results = build.generic(ins, [inits[i] for i in order], maps, [PARALLEL] * self.rank + [REDUCTION], body)
        for number, result in zip(order, results, strict=True):
            self.loop.results[number].replace_all_uses_with(result)
        self.loop.erase()

    def _wanted(self) -> list[ir.Value]:
        """What an iteration makes: the next states, and slices."""
        return [*(self.yielded[i] for i in self.states), *self.collected.values()]

    def _collected(self, argument: ir.Value, value: ir.Value) -> ir.Value | None:
        """The slice that each iteration adds to what becomes `value`, if these are all of it."""
        op = defining_op(value)
        if op is None or op.name != "tensor.insert_slice" or op.operands[1] != argument:
            return None
        if not single_use(argument) or not single_use(value):
            return None
        dim = self._along(op, op.operands[0].type)
        whole = [extent(argument, d) for d in range(argument.type.rank)]
        if dim is None or self.dim not in (-1, dim) or whole[dim] != size_form(self.loop.operands[1]):
            return None
        if any(d != dim and size_form(s) != whole[d] for d, s in enumerate(slice_sizes(op))):
            return None
        self.dim = dim
        return op.operands[0]

    def _along(self, op: ir.Operation, part: ir.RankedTensorType) -> int | None:
        """The dimension that a slice lacks, where it is that of the iteration, if it begins where the others do."""
        offsets, sizes = slice_offsets(op), slice_sizes(op)
        along = [d for d, offset in enumerate(offsets) if offset == self.induction]
        begins = all(offset == 0 for offset in offsets if offset != self.induction)
        begins = begins and not any(isinstance(s, ir.Value) and is_made_inside(s, self.loop) for s in sizes)
        if len(along) != 1 or sizes[along[0]] != 1 or part.rank != len(sizes) - 1:
            return None
        return along[0] if begins and all(s == 1 for s in op.opview.static_strides) else None

    def _with_dim(self, at: ir.AffineMap, dim: int | None = None) -> ir.AffineMap:
        """Where in the whole what is there in a slice is."""
        places, dim = list(at.results), self.dim if dim is None else dim
        return ir.AffineMap.get(at.n_dims, 0, [*places[:dim], ir.AffineDimExpr.get(self.rank), *places[dim:]])

    def _read(self, value: ir.Value, at: ir.AffineMap) -> tuple[ir.Value, ir.AffineMap] | None:
        """What is read before the loop in place of `value`, or of all slices that it is, and where; or None."""
        if not is_made_inside(value, self.loop):
            return value, at
        op = defining_op(value)
        if op is None or op.name != "tensor.extract_slice" or is_made_inside(op.operands[0], self.loop):
            return None
        dim = self._along(op, value.type)
        return (value, self._with_dim(at, dim)) if dim is not None else None

    def _all_slices(self, value: ir.Value) -> ir.Value:
        """The tensor of all slices `value` that the iterations read."""
        if not is_made_inside(value, self.loop):
            return value
        op = value.owner.operation
        source, (offsets, sizes, strides) = op.operands[0], slice_parts(op)
        upper = self.loop.operands[1]
        (along,) = (d for d, offset in enumerate(offsets) if offset == self.induction)
        offsets[along], sizes[along] = 0, build.constant_value(upper) or upper
        kind = ir.RankedTensorType.get(split(sizes)[1], source.type.element_type)
        return (
            source if source.type == kind and kind.has_static_shape else extract(kind, source, offsets, sizes, strides)
        )

    def _reaches(self, value: ir.Value, at: ir.AffineMap) -> bool:
        """Whether the element of `value` there is computed from elements of one iteration; notes the inputs."""
        if value in self.carried:
            return self.carried.index(value) in self.states and at == self.of_state
        read = self._read(value, at)
        if read is not None:
            self.inputs[read] = read[0]
            return True
        op = defining_op(value)
        loops = _loops(value, at) if op is not None and op.name == "linalg.generic" else None
        if op is None or loops is None:
            return False
        taken = [v for o in ops_in(op) for v in o.operands if not is_made_inside(v, op)]
        taken += [v for v in op.operands if not isinstance(v.type, ir.ShapedType)]
        of_iteration = any(is_made_inside(v, self.loop) for v in taken)
        return not of_iteration and all(self._reaches(v, _composed(m, loops)) for v, m in _tensors(op).values())

    def _element(self, value: ir.Value, at: ir.AffineMap, known: Elements) -> ir.Value:
        """The element of `value` there, computed at the insertion point."""
        read = self._read(value, at)
        if read is not None:
            return self.inputs[read]
        if (value, at) not in known:
            op, loops = defining_op(value), _loops(value, at)
            assert op is not None and loops is not None, "_reaches has seen it"
            inner = dict(zip(op.regions[0].blocks[0].arguments, op.operands, strict=True))
            inner |= {a: self._element(v, _composed(m, loops), known) for a, (v, m) in _tensors(op).items()}
            found = copy_elements(op, inner, in_loops(loops))
            same = zip(op.results, found, strict=True)
            known.update({(v, at): element for v, element in same if _loops(v, at) == loops})
        return known[(value, at)]


def _loops(value: ir.Value, at: ir.AffineMap) -> ir.AffineMap | None:
    """Where the loops of the element-wise op that makes `value` are for that element of it; None for other ops."""
    op = value.owner.operation
    written = indexing_maps(op)[len(op.operands) - len(op.results) + ir.OpResult(value).result_number]
    places = {dim_position(e): place for e, place in zip(written.results, at.results, strict=True)}
    kinds = iterator_types(op)
    if set(kinds) - {PARALLEL} or any(d not in places for d in range(len(kinds))):
        return None
    return ir.AffineMap.get(at.n_dims, 0, [places[d] for d in range(len(kinds))])


def _tensors(op: ir.Operation) -> dict[ir.Value, tuple[ir.Value, ir.AffineMap]]:
    """By the arguments of an op's body that are read: tensors whose elements they are, and their maps."""
    arguments = op.regions[0].blocks[0].arguments
    pairs = zip(arguments, op.operands, indexing_maps(op), strict=True)
    return {a: (v, m) for a, v, m in pairs if list(a.uses) and isinstance(v.type, ir.ShapedType)}


def _composed(m: ir.AffineMap, loops: ir.AffineMap) -> ir.AffineMap:
    return ir.AffineMap.get(loops.n_dims, 0, [e.compose(loops) for e in m.results])
