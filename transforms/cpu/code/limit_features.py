"""The pass ``limit-features``."""

from dataclasses import dataclass

from ....dialects.mlir import ir
from ...host import host_features
from ...passes import Pass, option
from ...rewriting import ops_in

# What a machine with vectors of that many bytes lacks; what depends on these goes with them.
LACKING = {32: ("avx512f", "avx10.1"), 16: ("avx",)}


@dataclass(frozen=True)
class LimitFeatures(Pass):
    """Lets functions use no instructions of vectors that are wider than `vector-bytes`, whatever the host has::

        llvm.func @attention(…)
    becomes, for 32 on a host with AVX-512
        llvm.func @attention(…) attributes {passthrough = [["target-features", "-avx512f"]]}

    Code for 16 or 32 bytes is then that of a machine without the wider ones, not the host's own instructions on
    narrow vectors.
    """

    vector_bytes: int = option("bytes of a vector: 64, 32 or 16; 0 = what the host has", 0)

    def run(self, op: ir.Operation) -> None:
        lacking = [f"-{name}" for name in LACKING.get(self.vector_bytes, ()) if name in host_features()]
        if not lacking:
            return
        entry = ir.ArrayAttr.get([ir.StringAttr.get("target-features"), ir.StringAttr.get(",".join(lacking))])
        for function in ops_in(op, "llvm.func"):
            old = list(function.attributes["passthrough"]) if "passthrough" in function.attributes else []
            function.attributes["passthrough"] = ir.ArrayAttr.get([*old, entry])
