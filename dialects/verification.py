"""How verifiers of ops defined in Python say what they expected and what they found."""

from collections.abc import Callable

from .mlir import ir


class VerificationError(Exception):
    """What a verifier found, in words: what was expected and what was found."""


def verifier(check: Callable[[ir.OpView], None]) -> Callable[[ir.Operation], bool]:
    """Turns ``check(op)``, which raises VerificationError, into the callback that the bindings want."""

    def verify(op: ir.Operation) -> bool:
        view = op.opview if isinstance(op, ir.Operation) else op
        with view.operation.context:  # upstream verifies what it prints, too, wherever that is
            try:
                expect_declared(view)
                check(view)
            except VerificationError as error:
                name = getattr(type(view), "assembly_name", view.operation.name)
                view.operation.location.emit_error(f"'{name}' op {error}")
                return False
        return True

    return verify


verify_declared = verifier(lambda op: None)  # for ops with nothing to check but what they declare


def expect_declared(op: ir.OpView) -> None:
    """Checks the numbers of operands and results and the attributes against the op's definition.

    Upstream checks these as well, but after our verifiers, which may rely on them.
    """
    fields = type(op)._fields  # type: ignore[attr-defined]
    for kind, definition, found in (
        ("operand", "OperandDef", len(op.operation.operands)),
        ("result", "ResultDef", len(op.operation.results)),
    ):
        single = [field.variadicity.name == "single" for field in fields if type(field).__name__ == definition]
        needed, least = sum(single), "" if all(single) else "at least "
        expect(
            found == needed or (bool(least) and found > needed),
            f"expects {least}{needed} {kind}{'' if needed == 1 else 's'}, but found {found}",
        )
    for field in fields:
        if type(field).__name__ == "AttributeDef":
            expect(field.name in op.operation.attributes, f"expects attribute '{field.name}'")
            value = op.operation.attributes[field.name]
            if isinstance(field.constraint, type):
                what = field.constraint.__name__.removesuffix("Attr").lower()
                expect(
                    isinstance(value, field.constraint),
                    f"expects attribute '{field.name}' to be of kind {what}, but found {value}",
                )


def expect(condition: bool, message: str) -> None:
    """Raises VerificationError with `message` unless `condition` holds."""
    if not condition:
        raise VerificationError(message)
