"""Einsums of open sizes as the products of matrices that they are; the importer lowers those of known sizes alone.
All say what their result is: the letters that stand once, by the alphabet, where an equation does not.

  y = Einsum<equation = "bqhd,bkhd->bhqk">(q, k)        where some size of q or k is not known
becomes
  y = MatMul(Transpose<perm = [0, 2, 1, 3]>(q), Transpose<perm = [0, 2, 3, 1]>(k))

One dimension is summed over. Of those that only one operand has the last is the matrix's, and others are batches.
"""

import re

from onnx import ModelProto, NodeProto, helper

from .rewriting import Scope, is_open, numbers, rewrite_all

TWO_OPERANDS = re.compile(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)")


def as_products(model: ModelProto) -> bool:
    """Rewrites these einsums, in place; whether there was one."""
    return rewrite_all(model.graph, _written_out)


def _written_out(node: NodeProto, scope: Scope) -> list[NodeProto] | None:
    """The nodes that compute the same; None where the importer knows the einsum as it is."""
    if node.op_type != "Einsum" or node.domain:
        return None
    product = _product(node) if any(is_open(scope.types.get(name)) for name in node.input) else None
    return product or _explicit(node)


def _equation(node: NodeProto) -> str:
    """An einsum's equation, with a result."""
    equation = helper.get_attribute_value(node.attribute[0]).decode().replace(" ", "")
    if "->" in equation:
        return equation
    once = sorted(label for label in set(equation) if label.isalpha() and equation.count(label) == 1)
    return f"{equation}->{'...' * ('...' in equation)}{''.join(once)}"


def _explicit(node: NodeProto) -> list[NodeProto] | None:
    if b"->" in node.attribute[0].s:
        return None
    return [helper.make_node("Einsum", list(node.input), list(node.output), node.name, equation=_equation(node))]


def _product(node: NodeProto) -> list[NodeProto] | None:
    """The nodes that compute the same; None where that is not one product of matrices."""
    parts = TWO_OPERANDS.fullmatch(_equation(node))
    if parts is None or any(len(set(labels)) < len(labels) for labels in parts.groups()):
        return None
    left, right, result = parts.groups()
    shared = [label for label in result if label in left and label in right]
    summed = [label for label in left if label in right and label not in result]
    own = [[label for label in labels if label not in shared and label not in summed] for labels in (left, right)]
    if len(summed) != 1 or not all(own) or not {*own[0], *own[1]} <= {*result}:
        return None
    name, place = node.output[0], node.name or node.output[0]
    outer = [labels[:-1] for labels in own]  # those that only one operand has are sizes of 1 in the other
    orders = (
        (node.input[0], left, [*shared, *outer[0], own[0][-1], *summed], f"{name}, left"),
        (node.input[1], right, [*shared, *outer[1], *summed, own[1][-1]], f"{name}, right"),
        (f"{name}, product", [*shared, *outer[0], *outer[1], own[0][-1], own[1][-1]], result, name),
    )
    made = [
        helper.make_node("Transpose", [source], [target], place, perm=[labels.index(label) for label in order])
        for source, labels, order, target in orders
    ]
    factors = [f"{name}, left", f"{name}, right"]
    starts = (len(shared) + len(outer[0]), len(shared))
    for i, (start, count) in enumerate(zip(starts, (len(outer[1]), len(outer[0])), strict=True)):
        if count:
            axes = f"{factors[i]}, axes"
            made.insert(-1, numbers(axes, range(start, start + count)))
            made.insert(-1, helper.make_node("Unsqueeze", [factors[i], axes], [f"{factors[i]}, wide"], place))
            factors[i] += ", wide"
    made.insert(-1, helper.make_node("MatMul", factors, [f"{name}, product"], place))
    return made
