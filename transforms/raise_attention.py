"""The pass ``raise-attention``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from ..dialects.mlir import ir
from ..dialects.tiling.structured import all_parallel
from .attention import ROOT, attention_at, fused_loops, has_heads, is_in
from .graph import ancestor_in, backward_slice, erase_with_producers, move_users_after, ops_on_way, other_use
from .passes import Pass, remark
from .raising.candidates import Followers
from .raising.distributing import distributed
from .raising.emission import Unreadable
from .raising.ends import divided_at, matched_at
from .raising.matching import Match, is_sum
from .raising.quotients import NearMiss
from .raising.rebuilding import rebuild
from .raising.softmax import SINGLE_KEY
from .raising.statistics import Statistic, row_statistics
from .reshapes import VIEWS
from .rewriting import defining_op, ops_in

SHARED = "needs its scores or probabilities as a whole too"


@dataclass
class Progress:
    """`candidates` for the end of an attention are still to be looked at, `others` did not look like one; those that
    are `left` do and are none, or stay as they are, for `reasons`: of their results, as the hash of an op changes with
    its operands."""

    candidates: list[ir.Operation]
    others: list[ir.Operation] = field(default_factory=list)
    left: list[ir.Operation] = field(default_factory=list)
    reasons: dict[ir.Value, str] = field(default_factory=dict)

    def leave(self, op: ir.Operation, reason: str) -> None:
        self.left.append(op)
        self.reasons[op.results[0]] = reason

    def reason(self, op: ir.Operation) -> str:
        """Why `op` is left; nothing if it is not."""
        return self.reasons.get(op.results[0], "")

    def erase(self, op: ir.Operation, *lists: list[ir.Operation]) -> None:
        """Erases `op`, if nothing uses it, and what only it needed."""
        erase_with_producers(op, self.candidates, self.others, self.left, *lists)
        left = {op.results[0] for op in self.left}
        self.reasons = {value: reason for value, reason in self.reasons.items() if value in left}


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
    read as they are. Ops marked ``__root__``, and loops that are fused already, are not touched.
    What is almost attention is left alone, with a remark that says why.
    """

    def run(self, op: ir.Operation) -> None:
        fused = fused_loops(op)
        sums = [o for o in ops_in(op, "linalg.", "linalg_ext.") if is_sum(o) and not is_in(o, fused)]
        progress, followers = Progress(sums), Followers(op)
        while progress.candidates:
            candidate = progress.candidates.pop(0)
            if ROOT in candidate.attributes or is_normal(candidate):
                continue
            if candidate not in followers:
                progress.others.append(candidate)
                continue
            try:
                try:
                    match = matched_at(candidate)
                    if match is None:
                        progress.others.append(candidate)
                except NearMiss as miss:
                    match = divided_at(candidate)
                    if match is None and not self._distribute(candidate, progress):
                        progress.leave(candidate, f"not raised to attention: softmax was expected, but {miss}")
                if match is not None:
                    self._raise([match], progress)
            except RecursionError:  # before anything is replaced
                remark(candidate, "not raised to attention: hundreds of scalar ops in a row lead to it")
        self._raise_together(progress)
        self._raise_unnormalised(progress)
        for candidate in progress.left:  # those that no attention has made superfluous
            reason = progress.reason(candidate)
            remark(candidate, reason, **({"kind": "trivial"} if reason.endswith(SINGLE_KEY) else {}))

    def _raise_together(self, progress: Progress) -> None:
        """Raises attentions that nothing but each other kept from it, as those of two values with one softmax: each
        computes the scores in its own loop."""
        matches: list[Match] = []
        for op in [op for op in progress.left if progress.reason(op).endswith(SHARED)]:
            with contextlib.suppress(NearMiss):  # a sum of probabilities
                match = matched_at(op)
                if match is not None:
                    matches.append(match)
        if len(matches) > 1:
            ends = [m.result.owner.operation for m in matches]
            progress.left[:] = [op for op in progress.left if op not in ends]
            self._raise(matches, progress)

    def _raise_unnormalised(self, progress: Progress) -> None:
        """Raises attentions without a softmax among what is left. Of one that stays as it is the reason is told, if
        there was none before."""
        progress.others += progress.left
        while progress.others:
            op = progress.others.pop(0)
            if not has_heads(op):
                continue
            refused: tuple[ir.Operation, str] | None = None
            for matched in (matched_at, divided_at):
                with contextlib.suppress(NearMiss, RecursionError):
                    match = matched(op, normalised=False)
                    if match is None:
                        continue
                    reason = self._refusal(match, progress)
                    if not reason:
                        break
                    refused = refused or (match.result.owner.operation, reason)
            else:
                if refused is not None and not progress.reason(refused[0]):
                    progress.leave(*refused)

    def _refusal(self, match: Match, progress: Progress) -> str:
        """Raises it, or says why not; reasons stay what they are."""
        before = dict(progress.reasons)
        if self._raise([match], progress):
            return ""
        reason = progress.reason(progress.left.pop())
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
            progress.leave(op, progress.reason(found.matches[0].result.owner.operation))
            found.value.replace_all_uses_with(old)
            progress.erase(found.value.owner.operation)
        return True

    def _raise(self, matches: list[Match], progress: Progress) -> int:
        """Raises those of the matches that can be, which may have scores in common; returns how many."""
        raised = 0
        for match, statistics in self._free(matches, progress):
            end = match.result.owner.operation
            try:
                value, root, others = rebuild(match, statistics)
            except Unreadable as reason:
                progress.leave(end, f"attention is left as it is: {reason}")
                continue
            raised += 1
            remark(root, "raised to attention", kind="raised")
            match.result.replace_all_uses_with(value)
            owners = [s.value.owner.operation for s in statistics]
            remaining = list(owners)  # those that are not erased
            progress.erase(end, remaining)
            for owner, statistic, other in zip(owners, statistics, others, strict=True):
                if owner in remaining:
                    self._replace_statistic(statistic.value, other)
                    progress.erase(owner, remaining)
        return raised

    def _free(self, matches: list[Match], progress: Progress) -> list[tuple[Match, list[Statistic]]]:
        """The matches whose scores and probabilities only these need, but for statistics that they have as well."""
        ends = {m.result.owner.operation: m for m in matches}
        firsts = [m.scores.reduction.op for m in matches]
        found: list[tuple[Match, list[Statistic]]] = []
        for end, match in ends.items():
            first = match.scores.reduction.op
            is_alone = firsts.count(first) == 1 and not match.softmax.is_plain
            statistics = row_statistics(match) if is_alone else []
            user = other_use(first, set(ends), ops_on_way(first, ends), frozenset(s.value for s in statistics))
            if user is not None:
                progress.leave(end, f"attention is left as it is: '{user.name}' {SHARED}")
            elif first.block != end.block:
                progress.leave(end, "attention is left as it is: its matmuls stand in different regions")
            else:
                found.append((match, statistics))
        if len(found) == len(matches):
            return found
        return self._free([match for match, _ in found], progress)  # what others need of these is no longer theirs

    def _replace_statistic(self, old: ir.Value, new: ir.Value) -> None:
        made = new.owner.operation
        users = [top for use in old.uses if (top := ancestor_in(use.owner.operation, made.block)) is not None]
        move_users_after(users, made)
        old.replace_all_uses_with(new)


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
            following = [o for v in op.operands if (o := defining_op(v)) is not None and end in backward_slice(o)]
            if len(following) != 1:
                return True
            op = following[0]
        return op is not None

    return plain(root.operands[0], attention.softmax) and plain(attention.softmax.operands[0], attention.scores)
