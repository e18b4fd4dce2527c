"""How verifiers of ops defined in Python say what they expected and what they found."""

from collections.abc import Callable

from .mlir import ir


class VerificationError(Exception):
    """What a verifier found, in words: what was expected and what was found."""


def verifier(check: Callable[[ir.OpView], None]) -> Callable[[ir.Operation], bool]:
    """Turns ``check(op)``, which raises VerificationError, into the callback that the bindings want."""

    def verify(op: ir.Operation) -> bool:
        view = op.opview if isinstance(op, ir.Operation) else op
        try:
            check(view)
        except VerificationError as error:
            view.operation.location.emit_error(f"'{view.operation.name}' op {error}")
            return False
        return True

    return verify


def expect(condition: bool, message: str) -> None:
    """Raises VerificationError with `message` unless `condition` holds."""
    if not condition:
        raise VerificationError(message)
