"""The pass ``outline-elements``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir
from ...dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ..copying import copy_scalar_body, index_at
from ..passes import Pass, PassError, option, warn
from ..rewriting import defining_op, functions_of, is_inside, only_if, ops_in, ops_of
from ..slices import slice_offsets
from .axes import DYNAMIC, is_first, kept_dims
from .constants import constant_memory, is_constant_tensor, splat_constant
from .launching import ceil_div, kernel_module, launch, new_kernel, read_buffer, strided, thread_number, to_tensor
from .producer_body import extracted
from .row_lanes import RowLanes, row_lanes
from .tile_body import TileBody

SLOW_STEPS = 1 << 24  # of a region, beyond which a user is told that a thread for each element is slow
STRAIGHT = 4  # pieces of a row that are no loop, so that loads of all of them are under way together


@dataclass(frozen=True)
class OutlineElements(Pass):
    """Makes a kernel of every linalg.generic that is left outside of loops over tiles, with a thread for each element::

        %r = linalg.generic {iterator_types = ["parallel", "reduction"]} ins(%a) outs(%init) -> tensor<?xi32> { … }
      becomes
        %out = memref.alloc(%n) : memref<?xi32>
        gpu.launch_func @f_kernels::@f_elements_0 blocks in (⌈%n / 256⌉, 1, 1) … args(%a, %out, %n, %k)
      and in gpu.module @f_kernels
        gpu.func @f_elements_0(…) kernel {
          %i = 256·block + thread
          scf.if %i < %n {
            %x = scf.for %j = 0 to %k iter_args(%x0 = %init) { … %a[%i, %j] … }
            memref.store %x, %out[%i]
          }

    For what stands around attention and is small: where sequences start, a bias made of a table, a sum. A matmul works
    too, and slowly, which is told.

    Sums over rows of 64 bytes or more, as of a norm of queries, have several threads a row (`row_lanes.py`), here 4::

          %i, %lane = %number / 4, %number mod 4
          %part = scf.if %i < %n {
            %v = vector.load %a[%i, 8·%lane] : vector<8xf16>
            %w = vector.load %a[%i, 8·%lane + 32] : vector<8xf16>
            0.0 + %v[0] + %v[1] … + %w[7]
          } else { 0.0 }
          %x = gpu.subgroup_reduce add %part cluster(size = 4)
          scf.if %i < %n and %lane == 0 { memref.store %init + %x, %out[%i] }
    """

    any_strides: bool = option("take arrays of any strides, not of dense rows alone", False)
    threads: int = option("threads of a block", 256)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            name = ir.StringAttr(function.attributes["sym_name"]).value
            left = [o for block in function.regions[0].blocks for o in ops_of(block) if _is_left(o)]
            for number, generic in enumerate(left):
                with generic.location:
                    lanes = row_lanes(generic, self.any_strides)
                    kernel = f"{name}_elements_{number}"
                    _Outliner(generic, kernel_module(function), kernel, self.threads, lanes).run()
            if left:
                _erase_dead(function)


def _is_left(op: ir.Operation) -> bool:
    if op.name != "linalg.generic" or not any(list(v.uses) for v in op.results):
        return False
    if len(op.results) == 1 and TileBody.splat(op.results[0]) is not None:  # others see what it is filled with
        return any(use.owner.operation.name != "linalg.generic" for use in op.results[0].uses)
    return True


def _erase_dead(function: ir.Operation) -> None:
    for op in reversed(ops_of(function.regions[0].blocks[0])):
        if op.name.startswith(("tensor.", "linalg.", "arith.")) and not any(list(v.uses) for v in op.results):
            op.erase()


class _Outliner:
    def __init__(self, op: ir.Operation, module: ir.Operation, name: str, threads: int, lanes: RowLanes | None):
        self.op, self.module, self.name, self.threads, self.lanes = op, module, name, threads, lanes
        self.kinds, self.maps = iterator_types(op), indexing_maps(op)
        self.parallel = [d for d, kind in enumerate(self.kinds) if kind == "parallel"]
        self.first_init = len(op.operands) - len(op.results)
        # Results that have an element for each step of a sum: the exponentials that are summed, say.
        self.of_steps = [
            i
            for i, m in enumerate(self.maps[self.first_init :])
            if any(dim_position(e) not in self.parallel and not is_first(e) for e in m.results)
        ]
        self.values: dict[ir.Value, ir.Value] = {}  # of the kernel, for the host's
        self.constants: dict[ir.Value, None] = {}  # tensors

    def run(self) -> None:
        op = self.op
        with ir.InsertionPoint(op):
            self.sizes = [self._size(d) for d in range(len(self.kinds))]
            known = all(isinstance(s, int) for s in self.sizes)
            if known and math.prod(self.sizes) > SLOW_STEPS and not self._reads_once():
                warn(op, f"{math.prod(self.sizes)} steps outside of attention run with a thread for each element: slow")
            outputs = [self._allocated(number) for number in range(len(op.results))]
            captured = self._captured()
            tensors = [v for v in captured if isinstance(v.type, ir.RankedTensorType)]
            scalars = [v for v in captured if v not in tensors]
            scalars += [s for s in self.sizes if isinstance(s, ir.Value) and s not in scalars]
            dense = self._read_by_pieces()
            buffers = [read_buffer(v, 1) if v in dense else read_buffer(v) for v in tensors]
            buffers += [strided(v) for v in outputs]
        self._kernel(tensors, scalars, [v.type for v in buffers])
        with ir.InsertionPoint(op):
            self._launch([*buffers, *scalars])
            for result, output in zip(op.results, outputs, strict=True):
                result.replace_all_uses_with(to_tensor(output, result.type))
        op.erase()

    # The host.

    def _size(self, loop: int) -> ir.Value | int:
        for value, m in zip(self.op.operands, self.maps, strict=True):
            for d, expression in enumerate(m.results):
                if dim_position(expression) == loop:
                    return _dim(value, d)
        raise PassError("a loop that no operand runs along has no size", self.op)

    def _allocated(self, number: int) -> ir.Value:
        kind, m = self.op.results[number].type, self.maps[self.first_init + number]
        sizes = [1 if is_first(e) else self.sizes[dim_position(e)] for e in m.results]
        dynamic = [s for s in sizes if isinstance(s, ir.Value)]
        plain = ir.MemRefType.get([DYNAMIC if isinstance(s, ir.Value) else s for s in sizes], kind.element_type)
        segments = ir.DenseI32ArrayAttr.get([len(dynamic), 0])
        if plain.shape != kind.shape:
            raise PassError(f"a result of type {kind} has sizes {plain.shape}", self.op)
        return ir.Operation.create("memref.alloc", [plain], dynamic, {"operandSegmentSizes": segments}).result

    def _captured(self) -> list[ir.Value]:
        """What the kernel reads: tensors whole where a slice is read, and scalars that are no constants."""
        found: dict[ir.Value, None] = {}
        for number, value in enumerate(self.op.operands):
            if number < self.first_init or self._is_read(number):
                self._capture(value, found)
        for value in [v for o in ops_in(self.op) for v in o.operands]:
            owner = value.owner
            outer = owner.owner if isinstance(owner, ir.Block) else owner
            if outer.operation != self.op and not is_inside(outer, self.op):
                self._capture(value, found)
        return list(found)

    def _is_read(self, number: int) -> bool:
        init = self.op.operands[number]
        used = list(self.op.regions[0].blocks[0].arguments[number].uses)
        return bool(used) and TileBody.splat(init) is None

    def _capture(self, value: ir.Value, found: dict[ir.Value, None]) -> None:
        if build.constant_value(value) is not None:
            return
        op = defining_op(value)
        while isinstance(value.type, ir.ShapedType) and op is not None and op.name == "tensor.extract_slice":
            for offset in slice_offsets(op):
                if isinstance(offset, ir.Value):
                    self._capture(offset, found)
            value = op.operands[0]
            op = defining_op(value)
        (self.constants if is_constant_tensor(value) else found)[value] = None

    def _reads_once(self) -> bool:
        """Whether threads that share rows read as much as there is, once."""
        return self.lanes is not None and any(len(self.maps[i].results) == len(self.kinds) for i in self.lanes.along)

    def _read_by_pieces(self) -> set[ir.Value]:
        """Tensors whose rows have to be dense, and aligned as dense ones are."""
        found = set()
        for number in self.lanes.along if self.lanes is not None and self.lanes.width > 1 else ():
            value = self.op.operands[number]
            while (op := defining_op(value)) is not None and op.name == "tensor.extract_slice":
                value = op.operands[0]
            found.add(value)
        return found

    def _launch(self, arguments: list[ir.Value]) -> None:
        total = build.index(self.lanes.lanes if self.lanes else 1)
        for d in self.parallel:
            total = arith.muli(total, build.as_index(self.sizes[d]))
        launch(self.module, self.name, ceil_div(total, self.threads), arguments)

    # The kernel.

    def _kernel(self, tensors: list[ir.Value], scalars: list[ir.Value], kinds: list[ir.Type]) -> None:
        block = new_kernel(self.module, self.name, [*kinds, *(v.type for v in scalars)])
        places = list(block.arguments)
        self.values.update(zip(tensors, places, strict=False))
        self.values.update(zip(scalars, places[len(kinds) :], strict=True))
        outputs = places[len(tensors) : len(kinds)]
        with ir.InsertionPoint(block):
            for i, value in enumerate(self.constants):
                same = splat_constant(value)
                self.values[value] = same or constant_memory(value, self.module, f"{self.name}_constant_{i}")
            number = thread_number(self.threads)
            total = build.index(1)
            for d in self.parallel:
                total = arith.muli(total, self._of(self.sizes[d]))
            self.outputs = outputs
            if self.lanes is not None:
                self._shared_rows(self.lanes, number, total)
            else:
                with only_if(arith.cmpi(arith.CmpIPredicate.slt, number, total)):
                    at = self._place(number)
                    sums = [i for i in range(len(outputs)) if i not in self.of_steps]
                    values = [self._init(i, at) for i in sums]
                    values = self._loops([d for d in range(len(self.kinds)) if d not in self.parallel], at, values)
                    for i, value in zip(sums, values, strict=True):
                        self._store(i, value, at)
            ir.Operation.create("gpu.return")

    def _place(self, number: ir.Value) -> dict[int, ir.Value]:
        """Where the element of that number is."""
        at: dict[int, ir.Value] = {}
        for d in reversed(self.parallel):
            at[d] = arith.remui(number, self._of(self.sizes[d]))
            number = arith.divui(number, self._of(self.sizes[d]))
        return at

    def _shared_rows(self, by: RowLanes, number: ir.Value, total: ir.Value) -> None:
        """The sums of a thread's row, of which it adds up a part. All threads of a warp go on to where parts are put
        together, those behind the last row too."""
        lane, row = arith.remui(number, build.index(by.lanes)), arith.divui(number, build.index(by.lanes))
        inside = arith.cmpi(arith.CmpIPredicate.slt, row, total)
        kinds = [v.type.element_type for v in self.op.results]
        neutral = [build.constant(kind, x) for kind, x in zip(kinds, by.neutral, strict=True)]

        def parts() -> list[ir.Value]:
            return self._loops([d for d, kind in enumerate(self.kinds) if kind == "reduction"], at, neutral, lane)

        at = self._place(row)
        values = _either(inside, kinds, parts, lambda: neutral)
        values = [_put_together(v, kind, by.lanes) for v, kind in zip(values, by.kinds, strict=True)]
        first = arith.cmpi(arith.CmpIPredicate.eq, lane, build.index(0))
        with only_if(arith.andi(inside, first)):
            for i, (value, combiner) in enumerate(zip(values, by.combiners, strict=True)):
                whole = ir.Operation.create(combiner.name, [kinds[i]], [self._init(i, at), value]).result
                self._store(i, whole, at)

    def _of(self, value: ir.Value | int) -> ir.Value:
        """The kernel's value for the host's."""
        constant = value if isinstance(value, int) else build.constant_value(value)
        if constant is None:
            return self.values[value]
        return build.index(constant) if isinstance(value, int) else defining_op(value).clone().results[0]

    def _store(self, result: int, value: ir.Value, at: dict[int, ir.Value]) -> None:
        place = [self.outputs[result], *self._indices(self.first_init + result, at)]
        ir.Operation.create("memref.store", [], [value, *place])

    def _init(self, result: int, at: dict[int, ir.Value]) -> ir.Value:
        number = self.first_init + result
        init = self.op.operands[number]
        splat = TileBody.splat(init)
        if splat is None and self._is_read(number):
            return self._element(init, self._indices(number, at))
        kind = self.op.results[result].type.element_type
        zero = ir.FloatAttr.get(kind, 0.0) if isinstance(kind, ir.FloatType) else ir.IntegerAttr.get(kind, 0)
        return arith.ConstantOp(kind, splat if splat is not None else zero).result

    def _indices(self, number: int, at: dict[int, ir.Value]) -> list[ir.Value]:
        """Which element of an operand an iteration reads or writes."""
        return [index_at(e, at.__getitem__, len(at)) for e in self.maps[number].results]

    def _element(self, value: ir.Value, indices: list[ir.Value]) -> ir.Value:
        """The element of a tensor, or of what it is a slice of."""
        (found,) = self._elements(value, indices)
        return found

    def _elements(self, value: ir.Value, indices: list[ir.Value], count: int = 1) -> list[ir.Value]:
        """Elements of a row, side by side."""
        op = defining_op(value)
        while op is not None and op.name == "tensor.extract_slice":
            inside = dict(zip(kept_dims(op, value.type), indices, strict=True))
            indices = [
                arith.addi(inside[d], self._of(offset)) if d in inside else self._of(offset)
                for d, offset in enumerate(slice_offsets(op))
            ]
            value = op.operands[0]
            op = defining_op(value)
        place = self.values[value]
        kind = value.type.element_type
        if not isinstance(place.type, ir.ShapedType):  # all elements of a constant
            return [place] * count
        if count == 1:
            return [ir.Operation.create("memref.load", [kind], [place, *indices]).result]
        vector = ir.VectorType.get([count], kind)
        piece = ir.Operation.create("vector.load", [vector], [place, *indices]).result
        return [extracted(piece, number) for number in range(count)]

    def _loops(
        self, reduced: list[int], at: dict[int, ir.Value], values: list[ir.Value], lane: ir.Value | None = None
    ) -> list[ir.Value]:
        """The loops that are summed over, the body in the innermost; of that, the part of a `lane`."""
        if not reduced:
            return self._body(at, values)
        first, *rest = reduced
        if self.lanes is not None and lane is not None and not rest:
            return self._part_of_row(self.lanes, at, values, lane)
        return _loop(self._of(self.sizes[first]), values, lambda i, v: self._loops(rest, {**at, first: i}, v, lane))

    def _part_of_row(self, by: RowLanes, at: dict[int, ir.Value], values: list[ir.Value], lane: ir.Value):
        """Every `lanes`-th piece of a row; some lanes have one more than the others."""

        def add_piece(round_: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
            piece = arith.addi(arith.muli(round_, build.index(by.lanes)), lane)
            return self._piece(by, arith.muli(piece, build.index(by.width)), at, values)

        rounds, rest = divmod(by.pieces, by.lanes)
        if rounds > STRAIGHT:
            values = _loop(build.index(rounds), values, add_piece)
        else:
            for number in range(rounds):
                values = add_piece(build.index(number), values)
        if not rest:
            return values
        more = arith.cmpi(arith.CmpIPredicate.ult, lane, build.index(rest))
        kinds = [v.type for v in values]
        return _either(more, kinds, lambda: add_piece(build.index(rounds), values), lambda: values)

    def _piece(self, by: RowLanes, first: ir.Value, at: dict[int, ir.Value], values: list[ir.Value]) -> list[ir.Value]:
        """The body for the elements of a piece, whose first one is `first`."""
        here = {**at, by.loop: first}
        known: dict[tuple[ir.Value, ir.AffineMap], list[ir.Value]] = {}
        for i in by.along:
            key = self.op.operands[i], self.maps[i]
            if key not in known:
                known[key] = self._elements(key[0], self._indices(i, here), by.width)
        for number in range(by.width):
            here = {**at, by.loop: arith.addi(first, build.index(number))}
            loaded = {i: known[self.op.operands[i], self.maps[i]][number] for i in by.along}
            values = self._body(here, values, loaded)
        return values

    def _body(
        self, at: dict[int, ir.Value], values: list[ir.Value], loaded: Mapping[int, ir.Value] = {}
    ) -> list[ir.Value]:
        """One step. `loaded`: elements of operands that are there."""
        body = self.op.regions[0].blocks[0]
        carried = iter(values)
        known = {
            argument: self._init(i, at) if i in self.of_steps else next(carried)
            for i, argument in enumerate(list(body.arguments)[self.first_init :])
        }
        for number, operand in enumerate(list(self.op.operands)[: self.first_init]):
            argument = body.arguments[number]
            if number in loaded:
                known[argument] = loaded[number]
            elif isinstance(operand.type, ir.ShapedType):
                known[argument] = self._element(operand, self._indices(number, at))
            else:
                known[argument] = self._of(operand)

        def extract(op: ir.Operation, here: Callable[[ir.Value], ir.Value]) -> ir.Value:
            source, *indices = op.operands
            return self._element(source, [here(v) for v in indices])

        computed = copy_scalar_body(body, known, self._of, at.__getitem__, extract)
        for i in self.of_steps:
            self._store(i, computed[i], at)
        return [value for i, value in enumerate(computed) if i not in self.of_steps]


def _loop(
    count: ir.Value, values: list[ir.Value], body: Callable[[ir.Value, list[ir.Value]], list[ir.Value]]
) -> list[ir.Value]:
    """A loop that carries values, its `body` given the number of an iteration and theirs."""
    kinds = [v.type for v in values]
    loop = ir.Operation.create("scf.for", kinds, [build.index(0), count, build.index(1), *values], regions=1)
    locations = [ir.Location.current] * (1 + len(kinds))
    block = loop.regions[0].blocks.append(ir.IndexType.get(), *kinds, arg_locs=locations)
    with ir.InsertionPoint(block):
        induction, *carried = block.arguments
        ir.Operation.create("scf.yield", [], body(induction, list(carried)))
    return list(loop.results)


def _either(
    condition: ir.Value, kinds: list[ir.Type], then: Callable[[], list[ir.Value]], other: Callable[[], list[ir.Value]]
) -> list[ir.Value]:
    branch = ir.Operation.create("scf.if", kinds, [condition], regions=2)
    for region, make in zip(branch.regions, (then, other), strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            ir.Operation.create("scf.yield", [], make())
    return list(branch.results)


def _put_together(part: ir.Value, kind: str, lanes: int) -> ir.Value:
    """The sum of the parts that neighbouring threads have, in all of them."""
    i32 = ir.IntegerType.get_signless(32)
    attributes = {
        "op": ir.Attribute.parse(f"#gpu<all_reduce_op {kind}>"),
        "cluster_size": ir.IntegerAttr.get(i32, lanes),
        "cluster_stride": ir.IntegerAttr.get(i32, 1),
    }
    return ir.Operation.create("gpu.subgroup_reduce", [part.type], [part], attributes).result


def _dim(value: ir.Value, d: int) -> ir.Value | int:
    if value.type.shape[d] != DYNAMIC:
        return value.type.shape[d]
    return ir.Operation.create("tensor.dim", [ir.IndexType.get()], [value, build.index(d)]).result
