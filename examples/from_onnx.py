"""A model in ONNX: attention becomes kernels, what is left of the model runs with it, as the file says.

pip install 'attn-opt[onnx]'
python examples/from_onnx.py               # or with a file of your own: from_onnx.py model.onnx
"""

import sys
import tempfile

import numpy as np
import onnx
from attn_opt.compiler import compile

MODEL = """
<ir_version: 10, opset_import: ["" : 23]>
block (float[2, 300, 512] x, float[512, 1536] w) => (float[2, 300, 512] y) {
  qkv = MatMul(x, w)
  q, k, v = Split<axis = -1, num_outputs = 3>(qkv)
  a = Attention<q_num_heads = 8, kv_num_heads = 8, is_causal = 1>(q, k, v)
  y = Add(x, a)
}
"""


def example(folder):
    """The path of a model: a projection, causal attention of eight heads, a residual connection."""
    model = onnx.parser.parse_model(MODEL)
    onnx.checker.check_model(model)
    onnx.save(model, f"{folder}/block.onnx")
    return f"{folder}/block.onnx"


def main():
    with tempfile.TemporaryDirectory() as folder:
        kernel = compile(sys.argv[1] if len(sys.argv) > 1 else example(folder))
    print(kernel.explain())
    if len(sys.argv) > 1:
        return
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 300, 512), (512, 1536)))
    y = kernel(x, w / 512**0.5)
    print(f"result: {y.shape}, {y.dtype}")


if __name__ == "__main__":
    main()
