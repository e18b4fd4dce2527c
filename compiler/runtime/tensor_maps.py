"""Tensor maps: how Hopper's copy engine finds its way in an array (CUDA driver API, cuTensorMapEncodeTiled).

made = TensorMap("f16", box=(1, 128, 64), sizes=(2, 1000, 64), strides=(64000, 64, 1))
made.point(address)                      # before a launch that gets `made.parameter`, an address
"""

import ctypes
from collections.abc import Sequence

from .cuda_driver import driver

BYTES = 128
ALIGNMENT = 64
# CU_TENSOR_MAP_DATA_TYPE_*, and bytes of an element.
TYPES = {
    "f16": (6, 2),
    "bf16": (9, 2),
    "f32": (7, 4),
    "i1": (0, 1),
    "i8": (0, 1),
    "f8E4M3FN": (0, 1),
    "f8E5M2": (0, 1),
    "i16": (1, 2),
    "i32": (2, 4),
}
SWIZZLES = {32: 1, 64: 2, 128: 3}  # CU_TENSOR_MAP_SWIZZLE_*, by the bytes of a row in shared memory
INTERLEAVE_NONE, PROMOTION_L2_128B, FILL_ZERO = 0, 2, 0


class TensorMap:
    """`sizes`, `strides` (in elements) and `box`, what one copy takes, from the outermost dimension on."""

    def __init__(self, element: str, box: Sequence[int], sizes: Sequence[int], strides: Sequence[int]):
        self.kind, size = TYPES[element]
        self.rank = len(box)
        self.storage = ctypes.create_string_buffer(BYTES + ALIGNMENT)
        self.parameter = -(-ctypes.addressof(self.storage) // ALIGNMENT) * ALIGNMENT
        self.address = -1
        self.sizes = (ctypes.c_uint64 * self.rank)(*(max(n, 1) for n in reversed(sizes)))
        # Where a dimension has one element its stride means nothing, but must be a multiple of 16 bytes.
        steps = [16 if n == 1 else s * size for n, s in zip(sizes, strides, strict=True)]
        self.strides = (ctypes.c_uint64 * max(self.rank - 1, 1))(*reversed(steps[:-1]))
        self.box = (ctypes.c_uint32 * self.rank)(*reversed(box))
        self.swizzle = SWIZZLES[box[-1] * size]
        self.ones = (ctypes.c_uint32 * self.rank)(*[1] * self.rank)

    def point(self, address: int) -> bool:
        """Makes it the map of the array at `address`; False if the driver takes no such array."""
        if address == self.address:
            return True
        encode = driver().library.cuTensorMapEncodeTiled
        place = ctypes.c_void_p(self.parameter)
        status = encode(
            place,
            self.kind,
            self.rank,
            ctypes.c_void_p(address),
            self.sizes,
            self.strides,
            self.box,
            self.ones,
            INTERLEAVE_NONE,
            self.swizzle,
            PROMOTION_L2_128B,
            FILL_ZERO,
        )
        self.address = -1 if status else address
        return not status

    def __str__(self) -> str:
        return f"sizes {tuple(self.sizes)} and strides {tuple(self.strides)[: self.rank - 1]} in bytes, innermost first"
