"""Terms of scores by keys and queries, not queries and keys, for GPUs, at the level of tiles, without one."""

import numpy as np
import pytest
from probability_graphs import SIZES, Graph, check_on_gpu, softmax

BUCKETS = 8


def disentangled(size: int) -> tuple[str, list[np.ndarray], np.ndarray]:
    """Queries have a score of each distance, and so have keys (DeBERTa). A distance is one tensor for both."""
    graph = Graph("bf16", SIZES | {"m": size, "k": size, "n": 16, "b": BUCKETS})
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    of_queries, of_keys = graph.argument("of_queries", "hmb", "f32"), graph.argument("of_keys", "hkb", "f32")
    places = graph.argument("places", "m", "i64")
    s = graph.scores("s", q, k)
    for name, dims, table in (("first", "mk", of_queries), ("second", "km", of_keys)):
        graph.empty(f"{name}_distance", dims, "i64")
        ins = [(places, d, "i64") for d in dims]
        body = ["%r = arith.subi %in0, %in1 : i64", "linalg.yield %r : i64"]
        graph.generic(f"{name}_distance", dims, "", ins, (f"%{name}_distance_empty", dims, "i64"), body)
        body = [
            "%none = arith.constant 0 : i64",
            f"%most = arith.constant {BUCKETS - 1} : i64",
            "%low = arith.maxsi %in0, %none : i64",
            "%bucket = arith.minsi %low, %most : i64",
            "%at = arith.index_cast %bucket : i64 to index",
            "%head = linalg.index 0 : index",
            "%row = linalg.index 1 : index",
            f"%r = tensor.extract {table}[%head, %row, %at] : {graph.type('hmb', 'f32')}",
            "linalg.yield %r : f32",
        ]
        graph.empty(name, "h" + dims, "f32")
        ins = [(f"%{name}_distance", dims, "i64")]
        graph.generic(name, "h" + dims, "", ins, (f"%{name}_empty", "h" + dims, "f32"), body)
    body = ["%t = arith.addf %in1, %in2 : f32", "%r = arith.addf %in0, %t : f32"]
    s = graph.elementwise("sum", "hmk", [(s, "hmk"), ("%first", "hmk"), ("%second", "hkm")], body)
    inputs = [*graph.inputs()[:-1], np.arange(size)]
    return graph.text(graph.softmax("p", s), v), inputs, expected(inputs)


def expected(inputs: list[np.ndarray]) -> np.ndarray:
    q, k, v, of_queries, of_keys = (x.astype(np.float64) for x in inputs[:5])
    i = inputs[5]
    distance = np.clip(i[:, None] - i, 0, BUCKETS - 1)
    first, second = (np.stack([np.take_along_axis(t, distance, -1) for t in table]) for table in (of_queries, of_keys))
    return softmax(0.25 * q @ k.swapaxes(1, 2) + first + second.swapaxes(1, 2)) @ v


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("size", [24, 64, 150])
def test_of_keys_and_queries(size, arch):
    """Also where all queries and all keys are in one square tile."""
    text, inputs, wanted = disentangled(size)
    check_on_gpu(text, wanted, inputs, "bf16", arch)
