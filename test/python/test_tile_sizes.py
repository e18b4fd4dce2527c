"""Tile sizes by what multiplies, the caches, and whether scores are masked."""

import pytest
from attn_opt.compiler import compile, pass_manager
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.attention import find_attention
from attn_opt.transforms.cpu import tile_sizes
from attn_opt.transforms.nvidia.registers import REGISTERS, consumer_registers
from attn_opt.transforms.nvidia.tile_sizes import choose_hopper_tile_sizes

CACHES = {1: 48 << 10, 2: 1 << 20}


def sizes(monkeypatch, unit: str, by_halves: bool = False, **fields) -> list[int]:
    """[batch, heads, queries, values, keys] of an attention of 512 × 512."""
    monkeypatch.setattr(tile_sizes, "matrix_unit", lambda: unit)
    monkeypatch.setattr(tile_sizes, "computes_by_halves", lambda: by_halves)
    monkeypatch.setattr(tile_sizes, "cache_bytes", CACHES.get)
    return chosen(tile_sizes.choose_tile_sizes, **{"queries": 512, "keys": 512, **fields})


def chosen(choose, **fields) -> list[int]:
    context = make_context()
    with context:
        module = parse_module(Attention(**fields).text(), "test.mlir", context)
        pass_manager.run(["raise-attention"], module)
        (attention,) = find_attention(module.operation)
        found, _ = choose(attention)
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


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({"head_size": 64}, 128),
        ({"head_size": 64, "dynamic": True}, 128),
        ({"head_size": 64, "keys": 255}, 64),
        ({"head_size": 40}, 128),
        ({"head_size": 24}, 64),
        ({"head_size": 64, "mask": "qk"}, 64),
    ],
    ids=str,
)
def test_pairs_computed_by_halves(monkeypatch, fields, keys):
    assert sizes(monkeypatch, "dot", by_halves=True, element="bf16", **fields) == [1, 1, 64, 0, keys]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"head_size": 64}, [1, 1, 32, 0, 128]),
        ({"head_size": 128}, [1, 1, 32, 0, 256]),  # as twice as many keys as columns of the output
        ({"head_size": 256}, [1, 1, 32, 0, 128]),  # with keys and values, half of L2
        ({"head_size": 40}, [1, 1, 32, 0, 256]),  # the output's last tile of columns is copied
        ({"head_size": 64, "window": (None, 0)}, [1, 1, 32, 0, 64]),
        ({"head_size": 128, "mask": "qk"}, [1, 1, 32, 0, 64]),
        ({"head_size": 128, "alibi": True}, [1, 1, 32, 0, 256]),
        ({"head_size": 128, "element": "f16"}, [1, 1, 32, 0, 64]),  # in two parts
    ],
    ids=str,
)
def test_tiles_of_a_matrix_unit(monkeypatch, fields, expected):
    assert sizes(monkeypatch, "amx-bf16", **{"element": "bf16", **fields}) == expected


def test_vectors(monkeypatch):
    assert sizes(monkeypatch, "none", element="bf16") == sizes(monkeypatch, "dot", element="f32") == [1, 1, 64, 0, 64]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"head_size": 32}, (256, 64)),
        ({"head_size": 64}, (192, 128)),
        ({"head_size": 64, "queries": 1024}, (256, 64)),  # of 1152 in six tiles of 192, 128 would be padding
        ({"head_size": 64, "queries": 2048, "heads": 8}, (128, 128)),  # 88 tiles of 192, 128 of 128
        ({"head_size": 64, "queries": 1536, "heads": 8}, (128, 128)),  # 96 blocks for 132 multiprocessors
        ({"head_size": 64, "queries": 512, "heads": 16}, (64, 128)),  # 128
        ({"head_size": 64, "queries": 512, "heads": 32}, (128, 128)),
        ({"head_size": 64, "queries": 2048, "heads": 12}, (192, 128)),
        ({"head_size": 64, "queries": 1024, "heads": 24}, (256, 64)),  # 96; two turns of smaller ones take longer
        ({"head_size": 64, "window": (None, 0), "queries": 1024, "keys": 1024, "heads": 16}, (64, 64)),
        ({"head_size": 64, "window": (None, 0), "queries": 1024, "keys": 1024, "heads": 24}, (128, 128)),
        (
            {"head_size": 64, "lengths": (700,), "queries": 1024, "keys": 1024, "heads": 16},
            (128, 128),
        ),  # nothing is dead
        ({"head_size": 128, "queries": 1024, "heads": 8}, (64, 128)),
        ({"head_size": 256, "queries": 1024, "heads": 8}, (64, 64)),
        ({"head_size": 128, "bias": "bhqk", "keys": 1023, "queries": 1024, "heads": 8}, (64, 112)),
        ({"head_size": 64, "softcap": 30.0, "queries": 512, "heads": 16}, (64, 128)),
        ({"head_size": 64, "window": (None, 0)}, (256, 64)),
        ({"head_size": 64, "window": (None, 0), "queries": 512, "heads": 128}, (256, 64)),
        ({"head_size": 64, "window": (None, 0), "queries": 256, "heads": 256}, (128, 128)),  # one tile of 256
        ({"head_size": 64, "window": (None, 0), "dynamic": True}, (256, 64)),
        ({"head_size": 64, "window": (None, 0), "bias": "qk", "queries": 1024}, (256, 64)),
        ({"head_size": 64, "window": (None, 0), "alibi": True}, (256, 64)),
        ({"head_size": 64, "window": (-100, 0)}, (256, 64)),  # each warpgroup has keys of its own
        ({"head_size": 64, "window": (-100, 0), "queries": 512, "heads": 128}, (256, 64)),
        ({"head_size": 64, "window": (-100, 0), "heads": 4}, (128, 128)),  # 64 tiles of 256 for 132 multiprocessors
        ({"head_size": 64, "window": (-100, 0), "dynamic": True}, (256, 64)),
        ({"head_size": 64, "window": (-100, 0), "element": "f8E4M3FN"}, (128, 128)),
        ({"head_size": 128, "window": (-100, 0)}, (128, 128)),
        ({"head_size": 128}, (128, 128)),
        ({"head_size": 256}, (128, 80)),
        ({"head_size": 256, "queries": 1024}, (128, 80)),
        ({"head_size": 256, "window": (None, 0)}, (128, 64)),
        ({"head_size": 320}, (128, 64)),
        ({"head_size": 512}, (128, 32)),
        ({"head_size": 512, "heads": 1}, (64, 48)),  # 64 tiles of 128, two for each, for 132 multiprocessors
        ({"head_size": 512, "window": (None, 0)}, (128, 64)),  # with one stage
        ({"head_size": 512, "bias": "qk"}, (64, 48)),  # which takes shared memory, too
        ({"head_size": 576, "value_size": 512}, (64, 32)),
        ({"head_size": 512, "element": "f32"}, (64, 16)),
        ({"head_size": 64, "softcap": 30.0}, (256, 64)),
        ({"head_size": 64, "softcap": 30.0, "heads": 4}, (128, 128)),  # 64 tiles of 256 for 132 multiprocessors
        ({"head_size": 64, "softcap": 30.0, "window": (None, 0)}, (256, 64)),
        ({"head_size": 128, "softcap": 30.0}, (128, 128)),
        ({"head_size": 64, "bias": "qk"}, (256, 64)),
        ({"head_size": 64, "bias": "qk", "heads": 4}, (128, 128)),  # 64 tiles of 256 for 132 multiprocessors
        ({"head_size": 64, "bias": "bhqk"}, (256, 64)),
        ({"head_size": 64, "bias": "bhqk", "softcap": 30.0}, (128, 128)),
        ({"head_size": 64, "mask": "qk"}, (128, 128)),  # more of larger tiles would be dead
        ({"head_size": 64, "mask": "bhqk"}, (128, 128)),
        ({"head_size": 64, "mask": "bk"}, (128, 128)),
        ({"head_size": 128, "documents": (96, 4000)}, (128, 128)),
        ({"head_size": 64, "documents": (96, 4000), "window": (None, 0)}, (128, 128)),
        ({"head_size": 64, "queries": 1}, (1, 64)),
        ({"head_size": 63}, (192, 128)),  # rows are not aligned, and copied to some that are
        ({"head_size": 63, "queries": 100}, (64, 128)),  # two of 64
        ({"head_size": 60, "queries": 200}, (128, 128)),
        ({"head_size": 60, "queries": 100}, (64, 64)),  # too few queries read what is copied
        ({"head_size": 63, "dynamic": True}, (192, 128)),
        ({"head_size": 1}, (64, 64)),
        ({"head_size": 64, "keys": 4095, "values_transposed": True}, (192, 128)),
        ({"head_size": 60, "input_layout": "bshd", "packed": "3hd"}, (64, 64)),  # parts of rows
        ({"head_size": 64, "input_layout": "bsdh"}, (64, 64)),  # elements of a row are of as many heads
    ],
    ids=str,
)
def test_hopper(fields, expected):
    found = chosen(choose_hopper_tile_sizes, **{"heads": 64, "queries": 4096, "keys": 4096, "element": "f16", **fields})
    assert (found[2], found[4]) == expected


@pytest.mark.parametrize(
    ("head", "element", "expected"),
    [
        (256, "f16", 0),
        (257, "f16", 144),
        (300, "f16", 160),  # 150, in whole groups of 16
        (512, "bf16", 256),
        (513, "f16", 176),
        (512, "f8E4M3FN", 128),  # become halves, which threads copy
        (512, "f32", 0),  # not in parts: left in memory
    ],
)
def test_parts_of_columns(head, element, expected):
    fields = {"heads": 64, "queries": 4096, "keys": 4096}
    found = chosen(choose_hopper_tile_sizes, head_size=head, element=element, **fields)
    assert found[3] == expected


def test_latent_attention_of_a_token():
    """128 heads share keys of 576, of which 512 are the values: rows of two tiles."""
    fields = {"head_size": 576, "value_size": 512, "queries": 1, "heads": 128, "heads_kv": 1, "keys": 4096}
    assert chosen(choose_hopper_tile_sizes, element="bf16", **fields) == [1, 1, 64, 1, 256, 32]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (256, 64)),
        ({"head_size": 128}, (128, 112)),
        ({"head_size": 128, "bias": "hqk", "batch": 2}, (128, 112)),  # two readers are too few for a copy
        ({"head_size": 128, "bias": "qk"}, (128, 128)),  # copied before
        ({"head_size": 128, "bias": "qk", "keys": 4096}, (128, 128)),
        ({"bias": "", "mask": "bhqk"}, (128, 128)),
    ],
    ids=str,
)
def test_hopper_with_others_whose_rows_are_not_aligned(fields, expected):
    sizes = {"batch": 1, "heads": 64, "queries": 4096, "keys": 4095, "head_size": 64, "element": "f16", "bias": "bhqk"}
    found = chosen(choose_hopper_tile_sizes, **{**sizes, **fields})
    assert (found[2], found[4]) == expected


@pytest.mark.parametrize("warpgroups", [1, 2, 3, 4, 5])
def test_warpgroups_ask_for_no_more_registers_than_the_launch_gave(warpgroups):
    threads = 128 * (warpgroups + 1)
    given = REGISTERS // threads // 8 * 8 * threads
    wanted = 128 * (consumer_registers(warpgroups) * warpgroups + 24)
    assert wanted <= given and consumer_registers(warpgroups) % 8 == 0
    assert [consumer_registers(n) for n in (2, 3)] == [240, 160]


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({"keys": 131072}, 1024),
        ({"keys": 8192}, 512),  # a sixteenth
        ({"keys": 1024}, 256),  # as for more queries: what fits into half of the L2 cache
        ({"keys": 131072, "heads": 64}, 512),  # scores of 8 rows fill the L1 cache
        ({"keys": 131072, "window": (-300, 0)}, 256),
        ({"keys": 131072, "dynamic": True}, 64),
        ({"keys": 131072, "input_layout": "bshd"}, 32),  # keys and values of eight heads fill a quarter of the L2 cache
    ],
    ids=str,
)
def test_streamed_keys(monkeypatch, fields, keys):
    decoding = {"queries": 1, "heads": 32, "heads_kv": 8, "head_size": 128}
    assert sizes(monkeypatch, "none", **{**decoding, **fields})[-1] == keys


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", ["cpu", "nvidia"])
def test_loops_without_a_size_are_not_tiled(target):
    text = Attention(batch=2, queries=64, keys=64, head_size=32).text()
    for given in ([1, 1], [1, 1, 16], [1, 1, 64, 0, 32]):
        compile(text, target=target, tile_sizes=given)
