"""What passes take the machine to be, by its features and the size of its caches."""

import pytest
from attn_opt.transforms import host
from attn_opt.transforms.cpu import target
from attn_opt.transforms.passes import PassError

ZEN = frozenset({"avx2", "avx512f", "sse4a"})


@pytest.mark.parametrize(
    ("features", "l1", "vector_bytes", "asks_l2"),
    [
        (ZEN, 32 << 10, 0, True),
        (ZEN, 48 << 10, 0, False),
        (frozenset({"avx2", "sse4a"}), 32 << 10, 0, False),  # narrower vectors read at several places instead
        (ZEN, 32 << 10, 64, False),  # forced: the same code on each machine
    ],
    ids=["small L1", "large L1", "without AVX-512", "forced"],
)
def test_streams_are_asked_for_into_l2_where_l1_is_small(monkeypatch, features, l1, vector_bytes, asks_l2):
    monkeypatch.setattr(target, "host_features", lambda: features)
    monkeypatch.setattr(target, "cache_bytes", lambda level: l1)
    assert target.host_target(vector_bytes).asks_l2 == asks_l2
    assert target.host_target(vector_bytes, ahead="l2").asks_l2
    assert not target.host_target(vector_bytes, ahead="l1").asks_l2


def test_unknown_cache_is_refused():
    with pytest.raises(PassError, match="ahead is 'l3'"):
        target.host_target(ahead="l3")


@pytest.mark.parametrize(
    ("features", "vector_bytes", "halves"),
    [
        (ZEN | {"fp256"}, 0, True),
        (ZEN, 0, False),
        (frozenset({"avx2", "fp256"}), 0, False),
        (ZEN | {"fp256"}, 64, False),
    ],
    ids=["units of 32 bytes", "of 64", "without AVX-512", "forced"],
)
def test_halves_are_those_of_vectors_of_64_bytes(monkeypatch, features, vector_bytes, halves):
    monkeypatch.setattr(host, "host_features", lambda: features)
    assert target.host_target(vector_bytes).halves == halves
    assert target.host_target(vector_bytes, halves="yes").halves
    assert not target.host_target(vector_bytes, halves="no").halves
