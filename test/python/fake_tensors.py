"""A graph, and arguments of its kernels: tensors of a library whose memory GPUs use in place. No GPU is needed."""

import contextlib

import numpy as np
from attn_opt.compiler.runtime import cuda_arrays

Q, K, V = (2, 70, 64), (2, 90, 64), (2, 90, 64)


def graph(dynamic: bool = False) -> str:
    m, k = ("?", "?") if dynamic else ("70", "90")
    q, kv, s, p, r = (f"tensor<2x{d}x{e}>" for d, e in ((f"{m}x64", "f16"), (f"{k}x64", "f16"), (f"{m}x{k}", "f32"),
                                                       (f"{m}x{k}", "f16"), (m, "f32")))  # fmt: skip
    o = f"tensor<2x{m}x64xf32>"
    at = {"m": "(%m)", "k": "(%k)", "mk": "(%m, %k)"} if dynamic else {"m": "()", "k": "()", "mk": "()"}
    return f"""
func.func @attention(%q: {q}, %kk: {kv}, %v: {kv}) -> {o} {{
  %c1 = arith.constant 1 : index
  %m = tensor.dim %q, %c1 : {q}
  %k = tensor.dim %kk, %c1 : {kv}
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %se = tensor.empty{at["mk"]} : {s}
  %s0 = linalg.fill ins(%zero : f32) outs(%se : {s}) -> {s}
  %s = linalg_ext.batch_matmul ins(%q, %kk : {q}, {kv}) outs(%s0 : {s}) layout = "nt"
  %re = tensor.empty{at["m"]} : {r}
  %m0 = linalg.fill ins(%low : f32) outs(%re : {r}) -> {r}
  %a0 = linalg.fill ins(%zero : f32) outs(%re : {r}) -> {r}
  %p:4 = linalg_ext.softmax dimension(2) ins(%s : {s}) 
      outs(%se, %m0, %a0, %re : {s}, {r}, {r}, {r}) : {s}, {r}, {r}, {r}
  %pe = tensor.empty{at["mk"]} : {p}
  %pn = linalg.generic {{indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel"]}} ins(%p#0 : {s}) outs(%pe : {p}) {{
  ^bb0(%x: f32, %y: f16):
    %t = arith.truncf %x : f32 to f16
    linalg.yield %t : f16
  }} -> {p}
  %oe = tensor.empty{at["m"]} : {o}
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : {o}) -> {o}
  %o = linalg_ext.batch_matmul ins(%pn, %v : {p}, {kv}) outs(%o0 : {o}) layout = "nn"
  return %o : {o}
}}"""


class Tensor(np.ndarray):
    """A tensor of a library whose memory kernels use in place. `device`: where it says that it is."""

    device = 0


class Tensors:
    """Stands for torch and CuPy."""

    copies = False
    current_device = 0

    def is_array(self, value):
        return isinstance(value, Tensor) and value.device >= 0

    def key(self, value):
        return value.shape, value.strides, value.dtype, value.device

    def describe(self, value):
        strides = tuple(s // value.itemsize for s in value.strides)
        return cuda_arrays.Array(0, value.shape, strides, cuda_arrays.element_of(value.dtype), value.device)

    def pointer(self, value):
        return value.ctypes.data

    def allocator(self, shape, element, device):
        return lambda: tensor(shape, cuda_arrays.numpy_type(element), device)

    def shaped(self, value, shape):
        return value.reshape(shape)

    def contiguous(self, value):
        found = tensor(value.shape, value.dtype, value.device)
        found[:] = value
        return found

    def stream(self, device):
        return 77 + device

    def current(self):
        return self.current_device

    @contextlib.contextmanager
    def on(self, device):
        before, self.current_device = self.current_device, device
        yield
        self.current_device = before


def tensor(shape, dtype=np.float16, device=0, offset=0):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 16 + offset
    found = memory[start : start + size].view(dtype).reshape(shape).view(Tensor)
    found.device = device
    return found


def arguments(**options):
    return tensor(Q, **options), tensor(K, **options), tensor(V, **options)
