"""The pass ``raise-attention``."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..dialects.mlir import ir
from ..dialects.tiling.structured import all_parallel
from .attention import ATTENTION, ROOT, attention_at, fused_loops, has_heads, is_in
from .graph import (
    Needed,
    ancestor_in,
    erase_with_producers,
    move_users_after,
    operands_with_captures,
    ops_on_way,
    other_use,
)
from .pairwise import PAIRWISE
from .passes import Pass, option, remark
from .raising.candidates import Beside, Followers
from .raising.distributing import distributed
from .raising.emission import Unreadable
from .raising.ends import divided_at, matched_at, multiply_back
from .raising.given import Given
from .raising.group_sums import is_of_several, over_heads
from .raising.matching import ANOTHER_MATMUL, Match, is_sum, match_attention
from .raising.pairwise import match_pairwise, match_whole
from .raising.quotients import NearMiss
from .raising.rebuilding import rebuild
from .raising.row_sums import over_outputs
from .raising.shifts import may_go_through_maximum, without_maximum
from .raising.softmax import SINGLE_KEY
from .raising.statistics import Statistic, row_statistics
from .reshapes import VIEWS
from .rewriting import defining_op, functions_of, ops_in

SHARED = "needs its scores or probabilities as a whole too"


@dataclass
class Progress:
    """`candidates` for the end of an attention are still to be looked at, `others` did not look like one; those that
    are `left` do and are none, or stay as they are, for `reasons`."""

    candidates: list[ir.Operation]
    others: list[ir.Operation] = field(default_factory=list)
    left: list[ir.Operation] = field(default_factory=list)
    reasons: dict[ir.Operation, str] = field(default_factory=dict)

    def leave(self, op: ir.Operation, reason: str) -> None:
        self.left.append(op)
        self.reasons[op] = reason

    def erase(self, op: ir.Operation, *lists: list[ir.Operation]) -> None:
        """Erases `op`, if nothing uses it, and what only it needed."""
        erase_with_producers(op, self.candidates, self.others, self.left, *lists)


@dataclass(frozen=True)
class RaiseAttention(Pass):
    """Finds attention however it is written, and writes it as ``fuse-attention`` takes it::

        %kt  = linalg.transpose ins(%k : tensor<2x7x8xf32>) … permutation = [0, 2, 1]
        %s   = linalg.batch_matmul ins(%q, %kt : …) …
        %m   = linalg.reduce { arith.maximumf } ins(%s : …) … dimensions = [2]
        %e   = linalg.generic ins(%s, %m : …) { exp(s − m) }
        %l   = linalg.reduce { arith.addf } ins(%e : …) … dimensions = [2]
        %p   = linalg.generic ins(%e, %l : …) { e / l }
        %o   = linalg.batch_matmul ins(%p, %v : …) …
      becomes
        %s   = linalg.generic ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>) { Σ q·k }
        %p:4 = linalg_ext.softmax dimension(2) ins(%s) outs(%empty, %minus_inf, %zeros, %empty)
        %o   = linalg.generic ins(%p#0, %v : …) { Σ p·v }

    Every element is traced back to the scalar expression that computes it, so that the order of ops, named or generic
    forms, layouts, reshapes, broadcasts and casts, but those to 8 bits, make no difference; see ``transforms/raising``.
    Uniform factors of queries and keys become one of the scores, keys and values repeated for groups of queries are
    read as they are. Ops marked ``__root__``, what is raised, and loops that are fused already, are not touched.
    What is almost attention is left alone, with a remark that says why.

    What follows from an attention, as its derivatives do, is attention without a softmax, or a result for each query
    and key (``transforms/pairwise.py``).
    """

    statistics: tuple[int, ...] = option(
        "arguments that are statistics of rows: what reads them follows from attention"
    )
    maxima: tuple[int, ...] = option("those of them that are the largest score of each row, and 0 where there is none")
    weights: tuple[int, ...] = option("those of them that are each key's probability in rows masked as a whole, else 0")

    def run(self, op: ir.Operation) -> None:
        _drop_shifts(op)
        fused = fused_loops(op)
        sums = [o for o in ops_in(op, "linalg.", "linalg_ext.") if is_sum(o) and not is_in(o, fused)]
        progress, followers = Progress(sums), Followers(op)
        if self._sum_over_outputs(progress, followers):
            followers = Followers(op)  # of what is new, too
        while progress.candidates:
            candidate = progress.candidates.pop(0)
            if any(mark in candidate.attributes for mark in (ROOT, ATTENTION, PAIRWISE)) or is_normal(candidate):
                continue
            if candidate not in followers:
                progress.others.append(candidate)
                continue
            try:
                try:
                    match = matched_at(candidate, followers=followers)
                    if match is None:
                        progress.others.append(candidate)
                except NearMiss as miss:
                    match = divided_at(candidate)
                    if match is not None:
                        multiply_back(candidate, match.result.owner.operation)
                    elif not self._distribute(candidate, progress):
                        progress.leave(candidate, f"not raised to attention: softmax was expected, but {miss}")
                if match is not None:
                    self._raise([match], progress)
            except RecursionError:  # before anything is replaced
                remark(candidate, "not raised to attention: hundreds of scalar ops in a row lead to it")
        # What nothing but each other kept from it: of two values with one softmax, of a softmax and its derivatives.
        sharing = [op for op in progress.left if progress.reasons[op].endswith(SHARED)]
        matches = self._matched(sharing, matched_at)
        given = self._results(matches)
        self._raise_together([*self._derived(matches, given, followers, progress), *matches], given, progress)
        self._raise_unnormalised(self._given(op), progress)
        for candidate in progress.left:  # those that no attention has made superfluous
            reason = progress.reasons[candidate]
            if reason.endswith(ANOTHER_MATMUL) and not self._is_still_left(candidate):
                continue
            remark(candidate, reason, **({"kind": "trivial"} if reason.endswith(SINGLE_KEY) else {}))

    @staticmethod
    def _is_still_left(candidate: ir.Operation) -> bool:
        """Whether it is almost attention now that the matmuls before it have been raised."""
        try:
            return matched_at(candidate) is not None
        except NearMiss:
            return True

    def _sum_over_outputs(self, progress: Progress, followers: Followers) -> bool:
        """Makes sums over rows of probabilities times products sums over the outputs of attentions (row_sums.py), which
        are candidates in their place; whether there are any."""
        is_any = False
        for op in list(progress.candidates):
            found = over_outputs(op) if op in progress.candidates and op in followers else None
            if found is not None:
                value, end = found
                op.results[0].replace_all_uses_with(value)
                progress.candidates.insert(progress.candidates.index(op), end)
                progress.erase(op)
                is_any = True
        return is_any

    @staticmethod
    def _matched(ops: Sequence[ir.Operation], matched: Callable[[ir.Operation], Match | None]) -> list[Match]:
        found: list[Match] = []
        for op in ops:
            with contextlib.suppress(NearMiss, RecursionError):  # a sum of probabilities
                match = matched(op)
                if match is not None:
                    found.append(match)
        return found

    def _raise_together(self, matches: list[Match], given: Given, progress: Progress) -> None:
        """Raises several that have scores in common: each computes them in its own loop."""
        matches = [*self._wholes(matches, given), *matches]
        if len(matches) > 1:
            ends = [m.result.owner.operation for m in matches]
            progress.left[:] = [op for op in progress.left if op not in ends]
            progress.others[:] = [op for op in progress.others if op not in ends]
            self._raise(matches, progress)

    @staticmethod
    def _wholes(matches: Sequence[Match], given: Given) -> list[Match]:
        """What else is needed of their scores, each as a whole, and follows from what is `given`."""
        found: list[Match] = []
        rows = frozenset(given.kinds) - {m.result for m in matches}
        for first in dict.fromkeys(m.scores.reduction.op for m in matches):
            while True:
                ends = {m.result.owner.operation for m in (*matches, *found)}
                way = ops_on_way(first, ends, given={m.result for m in matches})
                user = other_use(first, ends, way, rows)
                makers = [] if user is None else map(defining_op, operands_with_captures(user))
                makers = [op for op in makers if op in way and op not in ends]
                whole = next((m for op in makers if (m := match_whole(op, given)) is not None), None)
                if whole is None:
                    break
                found.append(whole)
        return found

    @staticmethod
    def _results(matches: Sequence[Match]) -> Given:
        """The results and statistics of attentions."""
        kinds = {m.result: "" for m in matches}
        for match in matches:
            kinds.update((s.value, s.kind) for s in row_statistics(match))
        return Given(kinds)

    def _derived(self, matches: list[Match], given: Given, followers: Followers, progress: Progress) -> list[Match]:
        """What follows from outputs and statistics of `matches`, without a softmax: it is to be raised before these."""
        if matches:
            self._sum_over_heads(given, progress, followers)
        done = {tensor.owner.operation for tensor in given.kinds}
        others = [op for op in (*progress.others, *progress.left) if op not in done and op in followers]
        return self._matched(others if matches else [], lambda op: _following(op, given))

    @staticmethod
    def _sum_over_heads(given: Given, progress: Progress, candidates: Followers | Beside) -> None:
        """Makes sums over queries and heads, which follow from what is `given`, sums over heads (group_sums.py): what
        these sum is looked at in their place."""
        for listed in (progress.others, progress.left):
            for op in [op for op in listed if is_of_several(op) and op in candidates]:
                with contextlib.suppress(NearMiss, RecursionError):
                    match = match_attention(op, normalised=False, given=given)
                    found = over_heads(match) if match is not None else None
                    if found is not None:
                        value, each = found
                        op.results[0].replace_all_uses_with(value)
                        listed.insert(listed.index(op), each)
                        candidates.replace(op, each)
                        progress.erase(op)

    def _given(self, root: ir.Operation) -> Given:
        functions = functions_of(root) if self.statistics else []
        arguments = [list(function.regions[0].blocks[0].arguments) for function in functions]
        pairs = (pair for of_one in arguments for pair in enumerate(of_one))
        kinds = {**dict.fromkeys(self.maxima, "kept max"), **dict.fromkeys(self.weights, "kept weight")}
        return Given({a: kinds.get(i, "") for i, a in pairs if i in self.statistics})

    def _raise_unnormalised(self, given: Given, progress: Progress) -> None:
        """Raises attentions without a softmax among what is left, which may follow from what is `given`. Of one that
        stays as it is the reason is told, if there was none before."""
        raised_at = functools.partial(_following, given=given)
        beside = Beside(given.kinds)
        no_ends: set[ir.Operation] = set()  # until something is raised
        divided = functools.partial(divided_at, normalised=False, no_ends=no_ends)
        sharing: list[ir.Operation] = []
        progress.others += progress.left
        if given.kinds:
            self._sum_over_heads(given, progress, beside)
        while progress.others:
            op = progress.others.pop(0)
            if not has_heads(op) and not (given.kinds and op in beside):
                continue
            refused: tuple[ir.Operation, str] | None = None
            for matched in (raised_at, divided):
                with contextlib.suppress(NearMiss, RecursionError):
                    match = matched(op)
                    if match is None:
                        continue
                    reason = self._refusal(match, progress)
                    if not reason:
                        no_ends.clear()
                        break
                    refused = refused or (match.result.owner.operation, reason)
            else:
                if refused is None:
                    continue
                end, reason = refused
                if reason.endswith(SHARED):
                    sharing.append(end)
                if end not in progress.reasons:
                    progress.leave(end, reason)
        sharing = [op for op in sharing if op in progress.left]
        self._raise_together(self._matched(sharing, raised_at), given, progress)

    def _refusal(self, match: Match, progress: Progress) -> str:
        """Raises it, or says why not; reasons stay what they are."""
        before = dict(progress.reasons)
        if self._raise([match], progress):
            return ""
        reason = progress.reasons[progress.left.pop()]
        progress.reasons = before
        return reason

    def _distribute(self, op: ir.Operation, progress: Progress) -> bool:
        """Whether `op` has a sum of probabilities as its operand, and is made a sum itself if there is attention in
        it."""
        found = distributed(op)
        if found is None:
            return False
        old = op.results[0]
        old.replace_all_uses_with(found.value)
        if self._raise(found.matches, progress):
            progress.erase(op)
        else:
            progress.leave(op, progress.reasons[found.matches[0].result.owner.operation])
            found.value.replace_all_uses_with(old)
            progress.erase(found.value.owner.operation)
        return True

    def _raise(self, matches: list[Match], progress: Progress) -> int:
        """Raises those of the matches that can be, which may have scores in common, or read the results of others;
        returns how many."""
        rebuilt = []
        for match, statistics in self._free(matches, progress):
            try:
                rebuilt.append((match, statistics, *rebuild(match, statistics)))
            except Unreadable as reason:
                end = match.result.owner.operation
                progress.leave(end, f"attention is left as it is: {reason}")
        ends = [match.result.owner.operation for match, *_ in rebuilt]
        owners = [[s.value.owner.operation for s in statistics] for _, statistics, *_ in rebuilt]
        remaining = [*ends, *(owner for of_one in owners for owner in of_one)]  # those that are not erased
        # Now that none of them is looked into any more.
        for (match, statistics, value, root, others), end, of_one in zip(rebuilt, ends, owners, strict=True):
            remark(root, "raised to attention", kind="raised")
            if end in remaining:
                match.result.replace_all_uses_with(value)
                progress.erase(end, remaining)
            for owner, statistic, other in zip(of_one, statistics, others, strict=True):
                if owner in remaining:
                    self._replace_statistic(statistic.value, other)
                    progress.erase(owner, remaining)
        return len(rebuilt)

    def _free(self, matches: list[Match], progress: Progress) -> list[tuple[Match, list[Statistic]]]:
        """The matches whose scores and probabilities only these need, but for statistics that they have as well."""
        ends = {m.result.owner.operation: m for m in matches}
        statistics: dict[ir.Operation, list[Statistic]] = {end: [] for end in ends}
        told: set[ir.Operation] = set()
        for end, match in ends.items():
            if not match.softmax.is_plain and match.scores.reduction.op not in told:  # of one softmax, once
                told.add(match.scores.reduction.op)
                statistics[end] = row_statistics(match)
        outputs = {m.result for m in matches}
        rows = frozenset(s.value for of_one in statistics.values() for s in of_one)
        found: list[tuple[Match, list[Statistic]]] = []
        for end, match in ends.items():
            first = match.scores.reduction.op
            user = other_use(first, set(ends), ops_on_way(first, ends, given=outputs), rows)
            if user is not None:
                progress.leave(end, f"attention is left as it is: '{user.name}' {SHARED}")
            elif first.block != end.block:
                progress.leave(end, "attention is left as it is: its matmuls stand in different regions")
            else:
                found.append((match, statistics[end]))
        if len(found) == len(matches):
            return found
        return self._free([match for match, _ in found], progress)  # what others need of these is no longer theirs

    def _replace_statistic(self, old: ir.Value, new: ir.Value) -> None:
        made = new.owner.operation
        users = [top for use in old.uses if (top := ancestor_in(use.owner.operation, made.block)) is not None]
        move_users_after(users, made)
        old.replace_all_uses_with(new)


def _drop_shifts(root: ir.Operation) -> None:
    """Drops what derivatives of softmaxes written by hand have through the maximum of a row, where it is 0."""
    for op in filter(may_go_through_maximum, ops_in(root, "linalg.generic")):
        with contextlib.suppress(RecursionError):  # hundreds of scalar ops in a row
            kept = without_maximum(op)
            if kept is not None:
                remark(op, "what goes through the maximum of a row is 0: softmax is the same whatever it is")
                op.results[0].replace_all_uses_with(kept)
                erase_with_producers(op)


def _following(op: ir.Operation, given: Given) -> Match | None:
    """What `op` ends that has no softmax, and may be computed from what is `given`: an attention, or what there is for
    each query and key, which a product of scores and scores looks like, too."""
    return match_pairwise(op, given) or matched_at(op, normalised=False, given=given)


def is_normal(root: ir.Operation) -> bool:
    """Whether `root` ends an attention in normal form: contraction, element-wise, softmax, casts, contraction."""
    attention = attention_at(root)
    if attention is None or attention.softmax is None or attention.softmax.name != "linalg_ext.softmax":
        return False

    def plain(start: ir.Value, end: ir.Operation) -> bool:
        op = defining_op(start)
        while op is not None and op != end:
            if op.name in VIEWS or not all_parallel(op):
                return False
            following = [o for v in op.operands if (o := defining_op(v)) is not None and end in Needed(o)]
            if len(following) != 1:
                return True
            op = following[0]
        return op is not None

    return plain(root.operands[0], attention.softmax) and plain(attention.softmax.operands[0], attention.scores)
