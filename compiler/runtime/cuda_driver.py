"""The CUDA driver's interface: the few functions of libcuda in use, their errors, devices, modules of code.

The driver is found at first use. Tests put one of their own in its place: ``with installed(Driver(library))``, where
`library` has functions of the same names.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_…
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
LARGEST_SHARED = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
ERROR_LOG, ERROR_LOG_SIZE = 5, 6  # CU_JIT_…
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
INVALID_CONTEXT = 201
LEGACY_STREAM = 1  # CU_STREAM_LEGACY
DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
LOG_BYTES = 1 << 14
ELF = b"\x7fELF"
NAME_BYTES = 128
LOCAL_SIZE_ATTRIBUTE = 3  # CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
LITTLE = 64  # bytes that a thread may spill: a few numbers, outside of the loop over keys


class CudaError(Exception):
    """There is no GPU, or the driver refused; the message says what to do."""


class Driver:
    """The functions of libcuda; each raises CudaError where it fails."""

    def __init__(self, library: Any = None, assemble: Callable[[bytes, str], bytes | None] | None = None) -> None:
        """`assemble`: makes machine code of PTX for an architecture, or None."""
        if library is None:
            try:
                library = ctypes.CDLL("libcuda.so.1")
            except OSError:
                raise CudaError("no NVIDIA driver (libcuda.so.1) is on this machine; use the target cpu") from None
        self.library = library
        self.assemble = assemble or _by_ptxas
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if not count.value:
            raise CudaError("no NVIDIA GPU is on this machine; use the target cpu")

    def call(self, name: str, *arguments: Any) -> None:
        self.check(name, getattr(self.library, name)(*arguments))

    def check(self, name: str, status: int) -> None:
        """Raises for a status that is no success."""
        if status:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(text))
            raise CudaError(f"{name} failed: {(text.value or b'unknown error').decode()}")

    def enter(self, device: int) -> None:
        """Makes the device's primary context, which torch, CuPy and JAX use as well, that of this thread."""
        if device not in self._contexts:
            context = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[device] = context
        self.call("cuCtxSetCurrent", self._contexts[device])

    def current_device(self) -> int:
        """The device of this thread's context; 0 where it has none yet, which it has then."""
        device = self._device_of_context()
        if device is None:
            self.enter(0)
        return device or 0

    def next_device(self) -> int:
        """The same, but that no context is made."""
        return self._device_of_context() or 0

    def _device_of_context(self) -> int | None:
        device = ctypes.c_int()
        return None if self.library.cuCtxGetDevice(ctypes.byref(device)) else device.value

    @functools.cache  # noqa: B019 (a driver lives as long as the process)
    def arch(self, device: int = 0) -> str:
        """A device's architecture as compilers spell it."""
        major, minor = (self._attribute(one, device) for one in (CAPABILITY_MAJOR, CAPABILITY_MINOR))
        return "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"

    @functools.cache  # noqa: B019
    def multiprocessors(self, device: int) -> int:
        """How many a device has, or the part of one that this process may use."""
        return self._attribute(MULTIPROCESSOR_COUNT, device)

    def _attribute(self, attribute: int, device: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return value.value

    def name(self, device: int) -> str:
        """What the device is called."""
        text = ctypes.create_string_buffer(NAME_BYTES)
        self.call("cuDeviceGetName", text, NAME_BYTES, device)
        return text.value.decode()

    @functools.cache  # noqa: B019
    def largest_shared(self, device: int) -> int:
        """The most bytes of shared memory that a block may have."""
        return self._attribute(LARGEST_SHARED, device)

    @functools.cached_property
    def version(self) -> int:
        value = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(value))
        return value.value

    # Memory.

    def allocate(self, size: int) -> int:
        """Bytes in whole pieces of 16, which is what kernels copy: of the last one they ask for as much as there is,
        but compute-sanitizer takes it as read as a whole."""
        pointer, pieces = ctypes.c_uint64(), -(-max(size, 1) // 16)
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(16 * pieces))
        return pointer.value

    def free(self, pointer: int) -> None:
        self.library.cuMemFree_v2(ctypes.c_uint64(pointer))  # at exit the driver may be gone: no check

    def to_device(self, pointer: int, source: int, size: int) -> None:
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), ctypes.c_void_p(source), ctypes.c_size_t(size))

    def to_host(self, target: int, pointer: int, size: int) -> None:
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(target), ctypes.c_uint64(pointer), ctypes.c_size_t(size))

    # Events order streams.

    def recorded(self, stream: int, timing: bool = False) -> ctypes.c_void_p:
        """An event after all that is on the stream now."""
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 0 if timing else DISABLE_TIMING)
        self.call("cuEventRecord", event, ctypes.c_void_p(stream))
        return event

    def seconds_between(self, before: ctypes.c_void_p, after: ctypes.c_void_p) -> float:
        """The time between two events with timing, which are gone then."""
        milliseconds = ctypes.c_float()
        self.call("cuEventSynchronize", after)
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), before, after)
        for event in (before, after):
            self.call("cuEventDestroy_v2", event)
        return milliseconds.value / 1e3

    # Code.

    def load(self, code: bytes, folder: pathlib.Path | None) -> ctypes.c_void_p:
        """A module of PTX or machine code, on the current device. Machine code that ptxas makes of PTX is kept in
        `folder`. Also while a stream of this thread is captured, which loading does not touch."""
        with self._outside_capture():
            if code[:4] == ELF:
                return self._loaded(code)
            made = self.machine_code(code, folder, self.current_device())
            if made is not None:
                with contextlib.suppress(CudaError):  # of a ptxas that is newer than the driver
                    return self._loaded(made)
            return self._loaded(code)

    def spilled(self, function: ctypes.c_void_p) -> int:
        """Bytes of a thread's registers that a kernel keeps in memory."""
        size = ctypes.c_int()
        self.call("cuFuncGetAttribute", ctypes.byref(size), LOCAL_SIZE_ATTRIBUTE, function)
        return size.value

    @contextlib.contextmanager
    def _outside_capture(self) -> Iterator[None]:
        mode = ctypes.c_int(RELAXED)
        self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def machine_code(self, ptx: bytes, folder: pathlib.Path | None, device: int) -> bytes | None:
        """What ptxas makes of PTX, now or before; None where there is none. The driver could do as much, but gives
        machine code away only by its linker (cuLinkAddData), which compiles kernels as if they were called from
        elsewhere: without setmaxnreg, so that they spill, and with one matmul after the other."""
        arch = self.arch(device)
        about = f"{self.version} {arch}\0".encode()
        file = None if folder is None else folder / f"{hashlib.sha256(about + ptx).hexdigest()}.cubin"
        if file is not None:
            try:
                found = file.read_bytes()
                os.utime(file)
                if found[:4] == ELF:
                    return found
            except OSError:
                pass
        made = self.assemble(ptx, arch)
        if made is not None and file is not None:
            with contextlib.suppress(OSError):
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                new = file.with_suffix(f".{os.getpid()}")
                new.write_bytes(made)
                new.replace(file)
        return made

    def _loaded(self, code: bytes) -> ctypes.c_void_p:
        """PTX is compiled by the driver, which keeps what it makes (CUDA_CACHE_PATH)."""
        module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(LOG_BYTES)
        options = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        try:
            self.call("cuModuleLoadDataEx", ctypes.byref(module), code, 2, options, values)
        except CudaError as error:
            said = log.value.decode(errors="replace")
            raise CudaError(f"{error}{': ' + said if said else ''}") from None
        return module


def _by_ptxas(ptx: bytes, arch: str) -> bytes | None:
    """Machine code of PTX, where ptxas is found and takes it."""
    from .ptx import assemble

    try:
        made = assemble(ptx.rstrip(b"\0").decode(), arch)
    except RuntimeError:  # an older ptxas; the driver tells what is wrong, if it is
        return None
    return None if made is None else made.cubin


_installed: list[Driver] = []


@functools.cache
def _found() -> Driver:
    return Driver()


def driver() -> Driver:
    """The driver in use. Raises CudaError where there is none, or no GPU."""
    return _installed[-1] if _installed else _found()


@contextlib.contextmanager
def installed(other: Driver) -> Iterator[Driver]:
    """For tests: `other` is the driver within the block."""
    _installed.append(other)
    try:
        yield other
    finally:
        _installed.remove(other)


def device_arch() -> str:
    """The architecture of this machine's current GPU."""
    found = driver()
    return found.arch(found.current_device())


def device_multiprocessors() -> int:
    """How many multiprocessors it has; for who compiles only, no context is made."""
    found = driver()
    return found.multiprocessors(found.next_device())
