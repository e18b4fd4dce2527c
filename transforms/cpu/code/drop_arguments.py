"""The pass ``drop-arguments``."""

from collections import defaultdict
from dataclasses import dataclass

from ....dialects.mlir import ir
from ...copying import copy_needed
from ...passes import Pass
from ...rewriting import Values, defining_op, ops_in, ops_of

INTERNAL = "#llvm.linkage<internal>"
# What a task computes from nothing as soon as it is told; vectors of positions and of ones are made so.
CONSTANTS = ("llvm.mlir.constant", "llvm.mlir.zero", "llvm.mlir.poison", "llvm.mlir.undef", "llvm.intr.stepvector")
OF_CONSTANTS = ("llvm.bitcast", "llvm.add", "llvm.mul")


@dataclass(frozen=True)
class DropArguments(Pass):
    """Internal functions take what they use, once, and no constants::

        llvm.func internal @task(%i: i64, %p: !llvm.ptr, %rows: i64, %stride: i64, %again: i64) { … not %p … }
        llvm.call @task(%x, %buffer, %n, %c64, %n)
    becomes
        llvm.func internal @task(%i: i64, %rows: i64) { %c64 = llvm.mlir.constant(64 : i64) : i64 … }
        llvm.call @task(%x, %n)

    A task's buffers are eleven arguments each: of their sizes and strides some are constants, some the same as those of
    other buffers, and all that the task knew from a type, it does not use. Each argument is written to OpenMP's struct,
    read from there and put on the stack. All that around tasks LLVM compiles as it is.
    """

    def run(self, op: ir.Operation) -> None:
        calls = defaultdict(list)
        elsewhere = set()
        for use in ops_in(op, "llvm.call", "llvm.mlir.addressof"):
            if use.name == "llvm.call" and "callee" in use.attributes:
                calls[use.attributes["callee"].value].append(use)
            elif use.name == "llvm.mlir.addressof":
                elsewhere.add(use.attributes["global_name"].value)
        for function in ops_of(op.regions[0].blocks[0]):
            if function.name != "llvm.func" or str(function.attributes["linkage"]) != INTERNAL:
                continue
            name = ir.StringAttr(function.attributes["sym_name"]).value
            if calls[name] and name not in elsewhere:
                _narrow(function, calls[name])


def _narrow(function: ir.Operation, calls: list[ir.Operation]) -> None:
    entry = function.regions[0].blocks[0]
    count = len(entry.arguments)
    passed = list(zip(*([*call.operands][:count] for call in calls), strict=True))
    kept: list[int] = []
    first: dict[tuple[ir.Value, ...], int] = {}
    copies: Values = {}
    with ir.InsertionPoint.at_block_begin(entry), function.location:
        for number, values in enumerate(passed):
            argument = entry.arguments[number]
            if next(iter(argument.uses), None) is None:
                continue
            if len({*values}) == 1 and _is_constant(values[0]):
                argument.replace_all_uses_with(copy_needed(values[0], copies, lambda _: True))
            elif values in first:
                argument.replace_all_uses_with(entry.arguments[first[values]])
            else:
                first[values] = number
                kept.append(number)
    if len(kept) == count:
        return
    for number in reversed(range(count)):
        if number not in kept:
            entry.erase_argument(number)
    _set_type(function, entry, kept)
    for call in calls:
        _call(call, count, kept)


def _is_constant(value: ir.Value) -> bool:
    made = defining_op(value)
    if made is None:
        return False
    return made.name in CONSTANTS or (made.name in OF_CONSTANTS and all(map(_is_constant, made.operands)))


def _set_type(function: ir.Operation, entry: ir.Block, kept: list[int]) -> None:
    attributes = function.attributes
    result = str(attributes["function_type"]).removeprefix("!llvm.func<").partition(" (")[0]
    kinds = ", ".join(str(argument.type) for argument in entry.arguments)
    attributes["function_type"] = ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<{result} ({kinds})>"))
    if "arg_attrs" in attributes:
        attributes["arg_attrs"] = ir.ArrayAttr.get([attributes["arg_attrs"][number] for number in kept])


def _call(call: ir.Operation, count: int, kept: list[int]) -> None:
    """The call with those of the arguments; what comes after these is of bundles."""
    operands = [*call.operands]
    attributes = {name: call.attributes[name] for name in call.attributes}
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([len(kept), len(operands) - count])
    if "arg_attrs" in attributes:
        attributes["arg_attrs"] = ir.ArrayAttr.get([attributes["arg_attrs"][number] for number in kept])
    with ir.InsertionPoint(call):
        new = ir.Operation.create(
            "llvm.call",
            [result.type for result in call.results],
            [operands[number] for number in kept] + operands[count:],
            attributes,
            loc=call.location,
        )
    for old, value in zip(call.results, new.results, strict=True):
        old.replace_all_uses_with(value)
    call.erase()
