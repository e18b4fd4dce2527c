"""What compiling gives, and how a file has it: magic, sha256 of the rest, sizes; then signature, counts and record in
JSON, code, the stages' IR."""

import dataclasses
import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from .cache_key import FORMAT, instructions
from .runtime.signature import Bound, Dimensions, Signature, Slot

MAGIC = f"{FORMAT}\n".encode()
CHECKSUM = hashlib.sha256().digest_size
_SIZES = struct.Struct("<QQ")  # of the JSON and of the object code; the texts are the rest


class Texts(Mapping[str, str]):
    """The stages' IR by name, in order; compressed until someone reads it."""

    def __init__(self, compressed: dict[str, bytes]):
        self.compressed = compressed

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "Texts":
        return cls({name: zlib.compress(text.encode(), 1) for name, text in texts.items()})

    def __getitem__(self, name: str) -> str:
        return zlib.decompress(self.compressed[name]).decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.compressed)

    def __len__(self) -> int:
        return len(self.compressed)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What compiling gives. `counts`: see ``counts.Counting``; `told`: whether there was anything to say meanwhile;
    `record`: see ``explain``."""

    signature: Signature
    texts: Texts
    runtime: Any  # a cpu.CpuKernel or cuda.CudaKernel
    counts: dict[str, Any]
    told: bool
    record: dict[str, Any]
    target: str = "cpu"


def packed(compiled: Compiled) -> bytes:
    """A kernel as a file has it."""
    image, signature = compiled.runtime.object_file(), compiled.signature
    about = {
        "name": signature.name,
        "arguments": [(slot.element, slot.shape, slot.strided, slot.donated) for slot in signature.arguments],
        "results": [(slot.element, slot.shape, slot.strided, slot.donated) for slot in signature.results],
        "groups": signature.dimensions.groups,
        "sizes": signature.dimensions.sizes,
        "bounds": [dataclasses.astuple(bound) for bound in signature.bounds],
        "counts": compiled.counts,
        "told": compiled.told,
        "record": compiled.record,
        "target": compiled.target,
        "instructions": instructions(compiled.target),
        "texts": [(name, len(text)) for name, text in compiled.texts.compressed.items()],
    }
    head = json.dumps(about).encode()
    body = b"".join([_SIZES.pack(len(head), len(image)), head, image, *compiled.texts.compressed.values()])
    return MAGIC + hashlib.sha256(body).digest() + body


def unpacked(data: bytes) -> Compiled:
    """The kernel of such a file. Raises ValueError where it is damaged, or for another CPU."""
    start = len(MAGIC) + CHECKSUM
    body = memoryview(data)[start:]
    if data[: len(MAGIC)] != MAGIC or hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
        raise ValueError("damaged")
    n_head, n_image = _SIZES.unpack_from(body)
    at = _SIZES.size + n_head
    about = json.loads(bytes(body[_SIZES.size : at]))
    if about["instructions"] != instructions(about["target"]):
        raise ValueError("compiled for another CPU")
    image, at = bytes(body[at : at + n_image]), at + n_image
    texts = {}
    for name, size in about["texts"]:
        texts[name], at = bytes(body[at : at + size]), at + size

    def slots(kinds: list) -> tuple[Slot, ...]:
        return tuple(Slot(e, None if shape is None else tuple(shape), *how) for e, shape, *how in kinds)

    groups = [[(i, d) for i, d in group] for group in about["groups"]]
    dimensions = Dimensions(groups, about["sizes"])
    bounds = tuple(Bound(*bound) for bound in about["bounds"])
    signature = Signature(about["name"], slots(about["arguments"]), slots(about["results"]), dimensions, bounds)
    runtime = _loaded(image, signature, about["target"])
    return Compiled(signature, Texts(texts), runtime, about["counts"], about["told"], about["record"], about["target"])


def _loaded(image: bytes, signature: Signature, target: str) -> Any:
    """The kernel of an image. Raises ValueError."""
    if target == "nvidia":
        from .runtime import cuda

        return cuda.CudaKernel(cuda.Image.unpacked(image), signature)
    from .runtime import cpu

    return cpu.CpuKernel.load(image, signature)
