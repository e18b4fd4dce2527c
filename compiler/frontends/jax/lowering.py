"""From a traced function of JAX to linalg on tensors.

    jax_loops.evaluate                scans and searches written out
    jax.jit(fn).trace(…).lower()      StableHLO in jaxlib's MLIR; its CHLO (erf, top-k, …) made StableHLO there
    serialize / deserialize           a portable artifact carries it over, so that the two versions may differ
    control_flow, sequential          in our context; loops and branches become scf's, scatters become loops
    sorting                           sorts become ranks
    concatenations                    become tensor.concat, which raise-attention reads through; linalg has branches
    stablehlo-legalize-to-linalg      then inline: jnp.where and tril are functions

Matmuls whose result is wider than their operands (``preferred_element_type``) get converted operands first; the
conversions vanish again where attention is raised.
"""

import importlib
from typing import Any

from ....dialects import make_context
from ....dialects.diagnostic import NOWHERE, DiagnosedError, place_of
from ....dialects.mlir import PACKAGE, ir
from ...diagnostics import user_error
from ..constants import compute_constants
from ..control_flow import to_scf
from ..lowering import check_lowered, first_line, ops, run
from ..open_sizes import look_up
from ..sequential import to_loops
from ..sorting import by_rank
from . import random as jax_random
from .complex import has_complex
from .places import WAY_OUT, refusal, written

# Types lose their signs after the ops that compare, convert or divide by them have been lowered.
TO_LINALG = (
    "builtin.module(func.func(stablehlo-legalize-to-linalg),stablehlo-convert-to-signless,reconcile-unrealized-casts,"
    "inline,symbol-dce,canonicalize,cse)"
)
IN_JAX = "builtin.module(func.func(chlo-legalize-to-stablehlo),canonicalize,cse)"
SAME = ("sdy.sharding_constraint", "stablehlo.optimization_barrier")  # these only say how to compute
SHARDINGS = ("Sharding", "xla.sdy.FuncResultSharding")  # so do calls of these
HINTS = {
    "stablehlo.scatter": "write to one array at a time, by jax.lax.dynamic_update_slice or x.at[…]",
}


def lower(traced: Any, name: str) -> ir.Module:
    """Linalg on tensors for what ``jax.jit(fn).trace`` gave. A user's error where there is no way."""
    module = _imported(_artifact(traced, name), name)
    for op in ops(module):
        if op.name == "stablehlo.dot_general":
            _settle_types(op)
    _replace_empty(module)
    to_scf(module)
    to_loops(module)
    by_rank(module)
    for op in ops(module):
        if op.name == "stablehlo.concatenate":
            _concatenate(op)
    run(module, TO_LINALG, WAY_OUT)
    check_lowered(module, ("stablehlo", "chlo", "vhlo"), WAY_OUT, HINTS)
    for op in ops(module):
        if any("complex<" in str(r.type) for r in op.results):
            at = written(traced.jaxpr.jaxpr, has_complex) or place_of(op.location) or NOWHERE
            raise refusal("complex numbers in loops and branches are not supported", at)
    look_up(module)  # places of slices, as in loops that were written out
    compute_constants(module)
    return module


def _artifact(traced: Any, name: str) -> bytes:
    """StableHLO as a portable artifact of a version that both sides know."""
    from jaxlib.mlir import passmanager as jax_passmanager
    from jaxlib.mlir.dialects import stablehlo as jax_stablehlo

    try:
        module = _refined(_lowered(traced).compiler_ir("stablehlo"))
        jax_stablehlo.register_stablehlo_passes()
        with module.context:
            jax_passmanager.PassManager.parse(IN_JAX).run(module.operation)
        _drop_shardings(module)
        _refuse_calls(module, name)
        version = jax_stablehlo.get_smaller_version(
            jax_stablehlo.get_current_version(), _stablehlo().get_current_version()
        )
        return jax_stablehlo.serialize_portable_artifact(module, version)
    except DiagnosedError:
        raise
    except Exception as error:
        raise user_error(f"JAX cannot lower '{name}' to StableHLO: {first_line(error)}") from error


def _refuse_calls(module: Any, name: str) -> None:
    """A user's error for what JAX leaves to functions of its own: callbacks, decompositions of matrices."""
    targets = [_target(op) for op in _jax_ops(module) if op.name == "stablehlo.custom_call"]
    if targets:
        raise user_error(f"'{name}' calls '{targets[0]}', which is no operation of StableHLO; {WAY_OUT}")


def _jax_ops(module: Any) -> list[Any]:
    """All ops of a module of jaxlib's MLIR."""
    from jaxlib.mlir import ir as jax_ir

    found: list[Any] = []

    def collect(op: Any) -> Any:
        found.append(op.operation)
        return jax_ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    return found


def _target(op: Any) -> str:
    return str(op.attributes["call_target_name"]).strip('"')


def _refined(module: Any) -> Any:
    """The module with all sizes known, where functions of jax.export in it were traced for symbolic ones."""
    from jax._src.interpreters import mlir as jax_mlir

    types = [str(op.attributes["function_type"]) for op in _jax_ops(module) if op.name == "func.func"]
    return jax_mlir.refine_polymorphic_shapes(module) if any("?" in kind for kind in types) else module


def _drop_shardings(module: Any) -> None:
    """A kernel computes all of every array on one device, as which any sharding has the same result."""
    with module.context:
        for op in _jax_ops(module):
            for named in [a for a in op.attributes if str(a).startswith(("sdy.", "mhlo.sharding"))]:
                del op.attributes[named]
            if op.name in SAME or (op.name == "stablehlo.custom_call" and _target(op) in SHARDINGS):
                for result, operand in zip(op.results, op.operands, strict=True):
                    result.replace_all_uses_with(operand)
            elif op.name != "sdy.mesh":
                continue
            op.erase()


def _lowered(traced: Any) -> Any:
    from jax._src.interpreters import mlir as jax_mlir

    own = jax_mlir.LoweringParameters(override_lowering_rules=jax_random.lowering_rules())
    try:
        return traced.lower(lowering_platforms=("cpu",), _private_parameters=own)
    except ValueError:
        # XLA's CPU backend has no matmuls of f16 that accumulate in f32; we have.
        return traced.lower(lowering_platforms=("cuda",), _private_parameters=own)


def _stablehlo() -> Any:
    return importlib.import_module(f"{PACKAGE}._mlir_libs._stablehlo")


def _imported(artifact: bytes, name: str) -> ir.Module:
    stablehlo = _stablehlo()
    stablehlo.register_stablehlo_passes()
    context = make_context()
    stablehlo.register_dialect(context)
    try:
        return stablehlo.deserialize_portable_artifact(context, artifact)
    except Exception as error:
        raise user_error(f"the StableHLO of '{name}' cannot be read: {first_line(error)}") from error


def _settle_types(op: ir.Operation) -> None:
    """Converts the operands of a matmul to its result's element type; rounds them before, where its algorithm says so
    (``DotAlgorithmPreset.BF16_BF16_F32``, which ``jax.nn.dot_product_attention`` has for bf16: the derivative of scores
    is f32, but multiplied as bf16). Algorithms of several products, or of tf32, are as exact as f32 here."""
    algorithm = _stablehlo().DotAlgorithm(op.attributes["algorithm"]) if "algorithm" in op.attributes else None
    element = ir.RankedTensorType(op.results[0].type).element_type
    for i, operand in enumerate(op.operands):
        if algorithm is not None and algorithm.num_primitive_operations == 1:
            precision = (algorithm.lhs_precision_type, algorithm.rhs_precision_type)[i]
            if precision.width <= 16 and ir.RankedTensorType(operand.type).element_type.width > precision.width:
                operand = _converted(operand, precision, op)
        op.operands[i] = _converted(operand, element, op)
    if algorithm is not None:
        del op.attributes["algorithm"]


def _converted(value: ir.Value, element: ir.Type, before: ir.Operation) -> ir.Value:
    kind = ir.RankedTensorType(value.type)
    if kind.element_type == element:
        return value
    with ir.InsertionPoint(before), before.location:
        made = ir.RankedTensorType.get(kind.shape, element)
        return ir.Operation.create("stablehlo.convert", [made], [value]).results[0]


def _replace_empty(module: ir.Module) -> None:
    """What has no elements is not computed, what is reduced from none is the initial value, what is padded around none
    the padding, and what is reduced along no dimension stays: none of these has a lowering."""
    dead = []
    for op in ops(module):
        if op.name == "stablehlo.reduce" and not len(op.attributes["dimensions"]):
            for operand, result in zip(op.operands, op.results, strict=False):
                result.replace_all_uses_with(operand)
            dead.append(op)
            continue
        for i, result in enumerate(op.results if op.name.startswith("stablehlo.") else ()):
            with ir.InsertionPoint(op), op.location:
                if _is_empty(result):
                    new = ir.Operation.create("tensor.empty", [result.type])
                elif op.name in ("stablehlo.reduce", "stablehlo.pad") and _is_empty(op.operands[0]):
                    attributes = {"broadcast_dimensions": ir.DenseI64ArrayAttr.get([])}
                    init = op.operands[len(op.results) + i]
                    new = ir.Operation.create("stablehlo.broadcast_in_dim", [result.type], [init], attributes)
                else:
                    continue
            result.replace_all_uses_with(new.results[0])
        if op.name in ("stablehlo.slice", "stablehlo.pad") and any(map(_is_empty, (op.operands[0], op.results[0]))):
            dead.append(op)  # its lowering would be no valid op
    for op in dead:
        op.erase()


def _is_empty(value: ir.Value) -> bool:
    return 0 in ir.RankedTensorType(value.type).shape


def _concatenate(op: ir.Operation) -> None:
    with ir.InsertionPoint(op), op.location:
        dim = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ir.IntegerAttr(op.attributes["dimension"]).value)
        new = ir.Operation.create("tensor.concat", [op.results[0].type], list(op.operands), {"dim": dim})
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()
