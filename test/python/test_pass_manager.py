"""Pipelines that mix passes of ours and of upstream: what runs, in what order, and how failures come out."""

import ctypes
import dataclasses

import pytest
from attn_opt.compiler import pass_manager
from attn_opt.compiler.diagnostics import Bug
from attn_opt.compiler.pass_manager import Hook, PassFailure, Timing, plan, run
from attn_opt.compiler.pass_options import make_pass, options_text, split_options
from attn_opt.compiler.pipeline_text import Nest, Step, parse_items
from attn_opt.compiler.pipelines import lower
from attn_opt.compiler.upstream_passes import UPSTREAM_PASSES
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module, print_module
from attn_opt.dialects.crash_recovery import Crashed, recovered
from attn_opt.dialects.diagnostic import DiagnosedError
from attn_opt.dialects.mlir import ir, passmanager
from attn_opt.transforms import passes
from attn_opt.transforms.passes import Pass, PassError, option, remark, warn

TEXT = """\
func.func @f() { return }
func.func @g(%x: tensor<3xf32>, %o: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = linalg_ext.diag ins(%x : tensor<3xf32>) outs(%o : tensor<3x3xf32>)
  return %0 : tensor<3x3xf32>
}
"""


@dataclasses.dataclass(frozen=True)
class LeaveOps(Pass):
    """Does nothing."""

    def run(self, op: ir.Operation) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class TagOps(Pass):
    """Tags ops."""

    name: str = option("the tag", "seen")
    counts: tuple[int, ...] = option("numbers")
    times: int = option("how often", 1)
    loudly: bool = option("say so", False)

    def __post_init__(self):
        if self.times > 100:
            raise ValueError(f"times is {self.times}, but must be 100 at most")

    def run(self, op: ir.Operation) -> None:
        op.attributes[f"test.{self.name}"] = ir.UnitAttr.get()
        remark(op, f"tagged {op.name}")
        if self.loudly:
            warn(op, "loud")
        if self.name == "error":
            raise PassError("cannot tag so", op)
        if self.name == "deep":
            self.run(op)
        if self.name == "bug":
            raise KeyError("oh")
        if self.name == "invalid":
            for function in op.regions[0].blocks[0].operations:
                function.regions[0].blocks[0].operations[-1].erase()
        if self.name == "circle":
            function = op.regions[0].blocks[0].operations[1]
            made = function.body.blocks[0].operations[0].operation
            made.operands[1] = made.results[0]


@pytest.fixture(autouse=True)
def tag_ops(monkeypatch):
    monkeypatch.setattr(passes, "names", lambda: ["tag-ops"])
    monkeypatch.setattr(passes, "lookup", {"tag-ops": TagOps}.__getitem__)
    monkeypatch.setattr(pass_manager, "_name_of", lambda pass_: "tag-ops")


@pytest.fixture
def module():
    with make_context():
        yield parse_module(TEXT, "two.mlir")


class Log(Hook):
    def __init__(self):
        self.calls = []

    def before(self, stage, module):
        self.calls.append(f"before {stage}")

    def after(self, stage, module, failed):
        self.calls.append(f"after {stage}" + (" failed" if failed else ""))


def test_hooks_run_around_each_pass(module):
    log, timing = Log(), Timing()
    run(["canonicalize,tag-ops", TagOps(), "builtin.module(func.func(cse))"], module, hooks=[log, timing])
    names = ["canonicalize", "tag-ops", "tag-ops", "cse"]
    assert log.calls == [f"{when} {name}" for name in names for when in ("before", "after")]
    assert [name for name, _ in timing.seconds] == names
    assert timing.table().endswith("total")


def test_our_pass_runs_on_its_anchor(module):
    run(["func.func(tag-ops{name=inner})", "tag-ops{name=outer}"], module)
    text = print_module(module)
    assert text.count("test.inner") == 2
    assert text.startswith("module attributes {test.outer} {")


def test_listener_is_told_in_order(module):
    told = []
    run([TagOps(loudly=True), "func.func(tag-ops)"], module, listener=told.append)
    assert [(found.severity, found.message) for found in told] == [
        ("remark", "tagged builtin.module"),
        ("warning", "loud"),
        ("remark", "tagged func.func"),
        ("remark", "tagged func.func"),
    ]
    assert (told[3].file, told[3].line) == ("two.mlir", 2)


def test_error_without_a_place_names_the_pass(module):
    with module.context:
        for function in module.operation.regions[0].blocks[0].operations:
            function.operation.location = ir.Location.unknown()
    with pytest.raises(PassFailure) as caught:
        run(["func.func(tag-ops{name=error})"], module)
    assert str(caught.value) == "error: pass 'tag-ops': cannot tag so"


def test_pass_error_is_a_failure_at_its_op(module):
    told, log = [], Log()
    with pytest.raises(PassFailure) as caught:
        run(["func.func(tag-ops{name=error})"], module, hooks=[log], listener=told.append)
    assert str(caught.value) == "two.mlir:1:1: error: cannot tag so"
    assert told[-1] in caught.value.diagnostics
    assert log.calls == ["before tag-ops", "after tag-ops failed"]


def test_upstream_failure_has_upstreams_diagnostics(module):
    with pytest.raises(PassFailure, match=r"two.mlir:3:8: error: op was not bufferized"):
        run(["one-shot-bufferize"], module)


def test_a_bug_comes_with_the_ir_before_it(module):
    with pytest.raises(Bug, match="pass 'tag-ops' raised KeyError") as caught:
        run(["canonicalize", "tag-ops{name=bug}"], module)
    assert caught.value.step == "builtin.module(tag-ops{name=bug})"
    assert "linalg_ext.diag ins(" in caught.value.ir
    assert "test.bug" not in caught.value.ir


def test_values_in_circles_are_a_bug_and_not_followed_for_ever(module):
    with pytest.raises(Bug, match="pass 'tag-ops' made invalid IR"):
        run([TagOps(name="circle"), Step("canonicalize")], module, verify=())


def test_invalid_ir_is_a_bug_unless_unverified(module):
    with pytest.raises(Bug, match=r"pass 'tag-ops' made invalid IR: .*block with no terminator"):
        run([TagOps(name="invalid")], module)
    run([TagOps(name="fine")], module, verify=False)
    run([TagOps(name="fine")], module, verify={"canonicalize"})


def test_invalid_ir_is_of_a_pass_since_it_was_verified(module, monkeypatch):
    names = {TagOps: "tag-ops", LeaveOps: "leave-ops"}
    monkeypatch.setattr(pass_manager, "_name_of", lambda pass_: names[type(pass_)])
    with pytest.raises(Bug, match=r"a pass from 'tag-ops' to 'leave-ops' made invalid IR") as caught:
        run([TagOps(name="invalid"), LeaveOps()], module, verify={"leave-ops"})
    assert caught.value.step == "builtin.module(tag-ops{name=invalid},leave-ops)"


def test_stage_text_runs_the_stage_alone(module):
    stages = plan(["func.func(tag-ops{times=2 counts=4,0,8})", "builtin.module(promote-buffers-to-stack)"])
    assert [stage.text for stage in stages] == [
        "builtin.module(func.func(tag-ops{counts=4,0,8 times=2}))",
        "builtin.module(func.func(promote-buffers-to-stack))",
    ]


@pytest.mark.parametrize(
    "options, expected",
    [
        ("", TagOps()),
        ("name=x", TagOps(name="x")),
        ('name="a b" loudly', TagOps(name="a b", loudly=True)),
        ("loudly=false times=3", TagOps(times=3)),
        ("counts=4,0,-8", TagOps(counts=(4, 0, -8))),
        ("counts={1, 2}", TagOps(counts=(1, 2))),
        ("counts=[1,2]", TagOps(counts=(1, 2))),
        ("counts= times=2", TagOps(times=2)),
    ],
)
def test_options(options, expected):
    made = make_pass("tag-ops", options)
    assert made == expected
    assert make_pass("tag-ops", options_text(made)) == made


def test_too_deep_is_an_error_of_the_users():
    told = []
    with pytest.raises(PassFailure):
        run([TagOps(name="deep")], parse_module(TEXT, "test.mlir", make_context()), listener=told.append)
    assert "too many ops in a row depend on each other" in told[-1].message


@pytest.mark.parametrize(
    "options, message",
    [
        ("count=4", "pass 'tag-ops' has no option 'count'; did you mean 'counts'?"),
        ("zzz", "pass 'tag-ops' has no option 'zzz'"),
        (
            "counts=4,x",
            "option 'counts' expects integers of 64 bits with commas between them, as in counts=4,0,8, but found '4,x'",
        ),
        ("counts=4,,8", "option 'counts' expects integers"),
        ("times=1.5", "option 'times' expects an integer from 0 to 2^63 - 1, as in times=4, but found '1.5'"),
        ("times", "option 'times' expects a value, as in times=4"),
        ("loudly=perhaps", "option 'loudly' expects true or false, but found 'perhaps'"),
        ("times=9223372036854775808", "option 'times' expects an integer from 0 to 2^63 - 1"),
        ("times=-1", "option 'times' expects an integer from 0 to 2^63 - 1, as in times=4, but found '-1'"),
        ("times=101", "pass 'tag-ops': times is 101, but must be 100 at most"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(DiagnosedError) as caught:
        make_pass("tag-ops", options)
    assert message in caught.value.diagnostics[0].message


def test_pipeline_text():
    assert parse_items(' cse , func.func( a{x=1 y={p q} z="}"} , b.c ( d-e ) ),any()') == (
        Step("cse"),
        Nest("func.func", (Step("a", 'x=1 y={p q} z="}"'), Nest("b.c", (Step("d-e"),)))),
        Nest("any", ()),
    )
    assert parse_items("") == ()
    assert split_options("a=1 b={c d} e") == [("a", "1"), ("b", "c d"), ("e", None)]


@pytest.mark.parametrize(
    "text, message",
    [
        ("cse,", "expected the name of a pass or an op but found its end at column 5"),
        ("cse)", "expected ',' but found ')' at column 4"),
        ("a(b", "expected ',' or ')' but found its end at column 4"),
        ("a{b", "expected '}' to close the options but found its end at column 4"),
        ("a b", "expected ',' but found 'b' at column 3"),
    ],
)
def test_wrong_pipeline_text(text, message):
    with pytest.raises(DiagnosedError) as caught:
        parse_items(text)
    assert caught.value.diagnostics[0].message == f"pass pipeline: {message}"


def test_the_list_of_upstreams_passes_is_right():
    unknown = []
    with ir.Context():
        for name in UPSTREAM_PASSES:
            try:
                passmanager.PassManager.parse(f"builtin.module({name})")
            except ValueError as error:
                if "restricted to" not in str(error):
                    unknown.append(name)
    assert not unknown


def test_threads_wait_for_each_other():
    """Verifiers in Python run in upstream's worker threads too."""
    many = "".join(TEXT.replace("@f", f"@f{i}").replace("@g", f"@g{i}") for i in range(40))
    with make_context():
        module = parse_module(many, "many.mlir")
        run(["func.func(canonicalize,cse)"], module)
        assert print_module(module).count("linalg_ext.diag") == 40


def test_passes_are_listed_in_the_order_of_the_pipeline():
    listed = passes.names()
    steps = [item.partition("{")[0] for item in lower("cpu")]
    used = [name for name in dict.fromkeys(steps) if name in listed]
    assert used == sorted(used, key=listed.index)


def test_a_crash_of_upstreams_is_a_bug_and_not_the_end(monkeypatch):
    def crash(function, *args):
        return recovered(ctypes.PyDLL(None).strlen, None)  # reads at address 0

    for _ in range(2):
        with pytest.raises(Crashed):
            crash(None)
    assert recovered(divmod, 7, 4) == (1, 3)
    with pytest.raises(ZeroDivisionError):
        recovered(divmod, 7, 0)
    monkeypatch.setattr(pass_manager, "recovered", crash)
    with make_context(), pytest.raises(Bug, match=r"builtin.module\(cse\) crashed") as caught:
        run(["cse"], parse_module(TEXT))
    assert caught.value.step == "builtin.module(cse)"
    assert "linalg_ext.diag ins(" in caught.value.ir
