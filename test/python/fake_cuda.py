"""A driver without a GPU: device memory is the host's, launches are noted down with the words they pass.

    with fake_driver() as fake: …; fake.launches

Behaves like libcuda as far as ``runtime.cuda_driver`` uses it; every name that it calls is counted in `calls`.
"""

import collections
import contextlib
import ctypes
import dataclasses
from collections.abc import Iterator
from typing import Any

from attn_opt.compiler import cache
from attn_opt.compiler.runtime import cuda_driver
from attn_opt.compiler.runtime.cuda_plan import PROGRAMMATIC_STREAM_SERIALIZATION, Attribute


@dataclasses.dataclass
class Launch:
    kernel: str
    grid: tuple[int, ...]
    threads: tuple[int, ...]
    shared: int
    stream: int | None
    parameters: list[int]  # as words, of which a parameter may use the lower half
    early: bool = False  # before the launch before it is done

    def word(self, number: int) -> int:
        return self.parameters[number]


class FakeLibrary:
    def __init__(
        self, capability: tuple[int, int] = (9, 0), devices: int = 2, ptxas: bool = True, shared: int = 232448
    ):
        self.capability, self.devices = capability, devices
        self.calls: collections.Counter[str] = collections.Counter()
        self.launches: list[Launch] = []
        self.loaded: list[bytes] = []
        self.memory: dict[int, Any] = {}
        self.functions: list[str] = []
        self.current: int | None = None
        self.ptxas, self.shared = ptxas, shared
        self.multiprocessors = 132
        self.spilled = 0  # bytes of a thread, of each kernel
        self.refused: list[bytes] = []  # code that the driver does not take
        self.statuses: list[int] = []  # of the next launches, in place of 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def called(*arguments: Any) -> int:
            self.calls[name] += 1
            found = getattr(type(self), f"_{name.removesuffix('_v2')}", None)
            return (found(self, *arguments) if found else None) or 0

        return called

    def _cuDeviceGetCount(self, count: Any) -> None:
        count._obj.value = self.devices

    def _cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> None:
        if attribute == cuda_driver.LARGEST_SHARED:
            value._obj.value = self.shared
        elif attribute == cuda_driver.MULTIPROCESSOR_COUNT:
            value._obj.value = self.multiprocessors
        else:
            value._obj.value = self.capability[attribute - cuda_driver.CAPABILITY_MAJOR]

    def _cuDriverGetVersion(self, value: Any) -> None:
        value._obj.value = 13000

    def _cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> None:
        context._obj.value = 1000 + device

    def _cuCtxSetCurrent(self, context: Any) -> None:
        self.current = context.value - 1000

    def _cuCtxGetDevice(self, device: Any) -> int:
        if self.current is None:
            return cuda_driver.INVALID_CONTEXT
        device._obj.value = self.current
        return 0

    def _cuMemAlloc(self, pointer: Any, size: Any) -> None:
        block = ctypes.create_string_buffer(b"\xff" * size.value, size.value + 256)
        address = -(-ctypes.addressof(block) // 256) * 256
        ctypes.memset(address, 0xFF, size.value)
        self.memory[address] = block
        pointer._obj.value = address

    def _cuMemFree(self, pointer: Any) -> None:
        del self.memory[pointer.value]

    def _cuMemcpyHtoD(self, target: Any, source: Any, size: Any) -> None:
        ctypes.memmove(target.value, source.value, size.value)

    def _cuMemcpyDtoH(self, target: Any, source: Any, size: Any) -> None:
        ctypes.memmove(target.value, source.value, size.value)

    def _cuMemcpyAsync(self, target: Any, source: Any, size: Any, stream: Any) -> None:
        ctypes.memmove(target.value, source.value, size.value)

    def _cuModuleLoadDataEx(self, module: Any, code: bytes, *_: Any) -> int:
        if code in self.refused:
            return 209
        self.loaded.append(code)
        module._obj.value = len(self.loaded)
        return 0

    def assemble(self, ptx: bytes, arch: str) -> bytes | None:
        """Stands for ptxas."""
        self.calls["ptxas"] += 1
        return b"\x7fELF" + ptx if self.ptxas else None

    def _cuFuncGetAttribute(self, value: Any, attribute: int, function: Any) -> None:
        assert attribute == cuda_driver.LOCAL_SIZE_ATTRIBUTE
        value._obj.value = self.spilled

    def _cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> None:
        self.functions.append(name.decode())
        function._obj.value = len(self.functions)

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        if self.statuses:
            return self.statuses.pop(0)
        *sizes, stream, parameters, _ = rest
        numbers = [s.value for s in sizes]
        name = self.functions[function.value - 1]
        parameters = [ctypes.c_uint64.from_address(address).value for address in parameters]
        self.launches.append(
            Launch(name, tuple(numbers[:3]), tuple(numbers[3:6]), numbers[6], stream.value, parameters)
        )
        return 0

    def _cuLaunchKernelEx(self, config: Any, function: Any, parameters: Any, extra: Any) -> int:
        c = config._obj
        sizes = map(ctypes.c_uint, (c.gx, c.gy, c.gz, c.bx, c.by, c.bz, c.shared))
        status = self._cuLaunchKernel(function, *sizes, ctypes.c_void_p(c.stream), parameters, extra)
        if c.attribute_count and not status:
            attributes = (Attribute * c.attribute_count).from_address(c.attributes)
            self.launches[-1].early = any(a.id == PROGRAMMATIC_STREAM_SERIALIZATION and a.value for a in attributes)
        return status

    def _cuGetErrorString(self, status: int, text: Any) -> None:
        text._obj.value = f"error {status}".encode()


@contextlib.contextmanager
def fake_driver(**options: Any) -> Iterator[FakeLibrary]:
    library = FakeLibrary(**options)
    cache.forget()  # what was loaded into another driver
    with cuda_driver.installed(cuda_driver.Driver(library, library.assemble)):
        yield library
    cache.forget()
