"""The pass ``version-functions``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir
from ...dialects.tiling.structured import dim_position, indexing_maps
from ..attention import Attention, attention_at, contraction_loops, find_attention
from ..extents import static_extents
from ..few_keys import see_few_keys
from ..linear import DYNAMIC
from ..open_queries import FEW_BLOCKS, FEW_QUERIES, open_queries, size_in_common
from ..passes import Pass, option, remark
from ..rewriting import functions_of
from .architecture import MULTIPROCESSORS

VERSIONS = "versions"  # of a function: others that do the same, each with its conditions, the first that suits is taken

Place = tuple[int, int]  # an argument, and one of its dimensions
Condition = tuple[int, list[Place]]  # these, multiplied, are at most so much


def loop_of_group(rows: Sequence[int], extents: Sequence[int | None]) -> int | None:
    """The loop over heads that share keys, of those over a tile's rows, whose last is over queries; None if none do."""
    return next((d for d in reversed(rows[:-1]) if extents[d] != 1), None)


def few_queries(most: int, rows: Sequence[int], extents: Sequence[int | None]) -> int:
    """How many queries of heads that share keys fill so many rows: a tile of few has so many."""
    heads = loop_of_group(rows, extents)
    return max(1, most // (1 if heads is None else extents[heads] or 1))


@dataclass(frozen=True)
class VersionFunctions(Pass):
    """A function of attention whose number of queries is known at run time only gets others for few of them::

        func.func @attention(%q: tensor<?x32x?x128xf16>, %k: tensor<?x8x?x128xf16>, …) {
          …
          %o = linalg.generic … ins(%p, %v : …)
      becomes
        func.func @attention_few_blocks(%q: tensor<?x32x?x128xf16>, …) {
          …
          %o = linalg.generic {few_queries = 64, few_blocks} … ins(%p, %v : …)
        }
        func.func @attention_few_queries(%q: tensor<?x32x?x128xf16>, …) {
          …
          %o = linalg.generic {few_queries = 64} … ins(%p, %v : …)
        }
        func.func @attention(%q: tensor<?x32x?x128xf16>, …) attributes {versions = [
            ["attention_few_blocks", [[64, [0, 2]], [8, [0, 0]], [128, [0, 0], [0, 2]]]],
            ["attention_few_queries", [[32, [0, 2]]]]
        ]} {
          …                                              // as it was

    At a call the host runs the first of them whose conditions hold: dimension 2 of argument 0 is 32 or less, say. Their
    tiles have `rows` rows, which 16 queries of a group of four heads fill together (`tile_sizes.py`): keys and values
    are read once for all of them, where else tiles of 128 queries of one head are computed whole, for a single query,
    too. That pays up to two tiles of queries. Where it leaves most multiprocessors idle, as up to 8 batch entries
    (dimension 0) of 8 heads do with 16 queries, or one with 64, keys are split over them (``split-keys``), up to `rows`
    queries. Where the number of batch entries is known, there is one version. All are right for any sizes. (There are
    none where few queries see few keys, and where sizes of several attentions differ.)
    """

    rows: int = option("how many rows few queries and the heads that share their keys have together", 64)
    multiprocessors: int = option("how many the GPU has", MULTIPROCESSORS)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            attentions = self._attentions(function)
            queries = self._queries(function, attentions)
            if queries is None:
                continue
            entries = self._entries(function, attentions)
            tile = min(map(self._few, attentions))
            versions: list[tuple[str, list[Condition]]] = [("_few_queries", [(min(self.rows, 2 * tile), [queries])])]
            if entries is not None and entries[1]:
                tiles = entries[0] * tile, [*entries[1], queries]
                versions.insert(0, ("_few_blocks", [(self.rows, [queries]), entries, tiles]))
            made = []
            for suffix, conditions in versions:
                splits = suffix == "_few_blocks" or (entries is not None and not entries[1])
                made.append((self._version(function, suffix, splits), conditions))
            for attention in attentions:
                most = versions[0][1][0][0]
                remark(attention.root, f"up to {most} queries have kernels of their own", kind="versioned")
            function.attributes[VERSIONS] = as_attribute(made)

    def _attentions(self, function: ir.Operation) -> list[Attention]:
        """Those whose number of queries is open, and that gain from few."""
        found = [attention_at(one.root) for one in find_attention(function)]
        attentions = [a for a in found if a is not None and open_queries(a) is not None]
        return [a for a in attentions if not see_few_keys(a, self.rows)]

    def _few(self, attention: Attention) -> int:
        loops, extents = contraction_loops(attention.root), static_extents(attention.root)
        assert loops is not None, "an attention's matmuls are contractions"
        return few_queries(self.rows, loops.m, extents)

    @staticmethod
    def _queries(function: ir.Operation, attentions: Sequence[Attention]) -> Place | None:
        """What says how many queries there are; None where attentions do not have equally many, or nothing says it."""
        places = {_place(function, a, open_queries(a) or 0) for a in attentions}
        return places.pop() if len(places) == 1 else None

    def _entries(self, function: ir.Operation, attentions: Sequence[Attention]) -> Condition | None:
        """That batch entries are few, of any attention: with a tile for each, half of the multiprocessors are idle;
        None where that cannot be told from sizes of arguments."""
        found: list[Condition] = []
        for attention in attentions:
            loops = contraction_loops(attention.root)
            assert loops is not None, "an attention's matmuls are contractions"
            output = [dim_position(e) for e in indexing_maps(attention.root)[2].results]
            shape = attention.root.results[0].type.shape
            dims = [output.index(d) for d in loops.batch]
            places = [_place(function, attention, d) for d in dims if shape[d] == DYNAMIC]
            if None in places:
                return None
            known = math.prod(shape[d] for d in dims if shape[d] != DYNAMIC)
            found.append((self.multiprocessors // 2 // max(known, 1), [p for p in places if p is not None]))
        same = all(places == found[0][1] for _, places in found)
        return (min(most for most, _ in found), found[0][1]) if same else None

    def _version(self, function: ir.Operation, suffix: str, splits: bool) -> str:
        name = ir.StringAttr(function.attributes["sym_name"]).value + suffix
        with ir.InsertionPoint(function), function.location:
            version = function.clone().operation
        version.attributes["sym_name"] = ir.StringAttr.get(name)
        for attention in self._attentions(version):
            attention.root.attributes[FEW_QUERIES] = build.i64_attribute(self.rows)
            if splits:
                attention.root.attributes[FEW_BLOCKS] = ir.UnitAttr.get()
        return name


def _place(function: ir.Operation, attention: Attention, dim: int) -> Place | None:
    """Which dimension of which argument of a function says how many elements an output has along one of its own."""
    size = size_in_common(attention.root.operands[2], dim)
    arguments = list(function.regions[0].blocks[0].arguments)
    return (arguments.index(size[0]), size[1]) if isinstance(size, tuple) and size[0] in arguments else None


def as_attribute(versions: Sequence[tuple[str, Sequence[Condition]]]) -> ir.ArrayAttr:
    """What `versions_of` reads."""

    def pairs(conditions: Sequence[Condition]) -> ir.ArrayAttr:
        number = build.i64_attribute
        found = [
            [number(most), *(ir.ArrayAttr.get([number(n) for n in place]) for place in places)]
            for most, places in conditions
        ]
        return ir.ArrayAttr.get([ir.ArrayAttr.get(one) for one in found])

    return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.StringAttr.get(name), pairs(of)]) for name, of in versions])


def versions_of(function: ir.Operation) -> list[tuple[str, list[Condition]]]:
    """The names of a function's versions, and when each is to be taken."""
    if VERSIONS not in function.attributes:
        return []
    found: list[tuple[str, list[Condition]]] = []
    for name, conditions in ir.ArrayAttr(function.attributes[VERSIONS]):
        read: list[Condition] = []
        for condition in conditions:
            most, *places = condition
            read.append((ir.IntegerAttr(most).value, [tuple(ir.IntegerAttr(n).value for n in p) for p in places]))
        found.append((ir.StringAttr(name).value, read))
    return found
