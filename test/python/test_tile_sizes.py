"""Tile sizes by what multiplies, the caches, and whether scores are masked."""

import pytest
from attn_opt.compiler import pass_manager
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms import tile_sizes
from attn_opt.transforms.attention import find_attention
from attn_opt.transforms.nvidia.tile_sizes import choose_hopper_tile_sizes

CACHES = {1: 48 << 10, 2: 1 << 20}


def sizes(monkeypatch, unit: str, **fields) -> list[int]:
    """[batch, heads, queries, values, keys] of an attention of 512 × 512."""
    monkeypatch.setattr(tile_sizes, "matrix_unit", lambda: unit)
    monkeypatch.setattr(tile_sizes, "cache_bytes", CACHES.get)
    context = make_context()
    with context:
        module = parse_module(Attention(**{"queries": 512, "keys": 512, **fields}).text(), "test.mlir", context)
        pass_manager.run(["raise-attention"], module)
        (attention,) = find_attention(module.operation)
        found, _ = tile_sizes.choose_tile_sizes(attention)
    return found


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"head_size": 64}, [1, 1, 64, 0, 64]),
        ({"head_size": 128}, [1, 1, 64, 0, 128]),
        ({"head_size": 128, "window": (None, 0)}, [1, 1, 64, 0, 64]),
        ({"head_size": 128, "mask": "qk"}, [1, 1, 64, 0, 64]),
        ({"head_size": 128, "alibi": True}, [1, 1, 64, 0, 128]),  # adds, and chooses nothing
        ({"head_size": 64, "element": "f16"}, [1, 1, 64, 0, 64]),  # multiplied in f32
    ],
    ids=str,
)
def test_pairs(monkeypatch, fields, expected):
    assert sizes(monkeypatch, "dot", **{"element": "bf16", **fields}) == expected


def test_tiles_of_a_matrix_unit(monkeypatch):
    assert sizes(monkeypatch, "amx-bf16", element="bf16", window=(None, 0)) == [1, 1, 32, 0, 256]


def test_vectors(monkeypatch):
    assert sizes(monkeypatch, "none", element="bf16") == sizes(monkeypatch, "dot", element="f32") == [1, 1, 64, 0, 64]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"head_size": 64}, [1, 1, 192, 0, 80]),
        ({"head_size": 64, "softcap": 30.0}, [1, 1, 192, 0, 64]),
        ({"head_size": 64, "softcap": 30.0, "window": (None, 0)}, [1, 1, 128, 0, 128]),
        ({"head_size": 128, "softcap": 30.0}, [1, 1, 128, 0, 128]),
        ({"head_size": 64, "bias": "bhqk"}, [1, 1, 128, 0, 128]),
        ({"head_size": 64, "queries": 1}, [1, 1, 1, 0, 64]),
    ],
    ids=str,
)
def test_hopper(fields, expected):
    context = make_context()
    with context:
        graph = Attention(**{"queries": 1536, "keys": 512, "element": "f16", **fields})
        module = parse_module(graph.text(), "test.mlir", context)
        pass_manager.run(["raise-attention"], module)
        (attention,) = find_attention(module.operation)
        assert choose_hopper_tile_sizes(attention)[0] == expected
