"""The API of dialects/assembly: what is parsed, printed and refused."""

import pytest
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import AssemblyError, parse_module, print_module, print_op
from attn_opt.dialects.assembly.formats import FormatError, forms, parse_format
from attn_opt.dialects.linalg_ext import DiagOp
from attn_opt.dialects.mlir import ir

DIAG = """\
func.func @f(%x: tensor<3xf32>, %o: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = linalg_ext.diag {tag} ins(%x : tensor<3xf32>) outs(%o : tensor<3x3xf32>)
  return %0 : tensor<3x3xf32>
}
"""


@pytest.fixture
def context():
    with make_context() as context:
        yield context


def first_ops(module: ir.Module) -> list[ir.OpView]:
    return list(module.body.operations[0].regions[0].blocks[0].operations)


def test_parse_gives_a_module_with_located_ops(context):
    module = parse_module(DIAG, "given/name.mlir")
    assert isinstance(module, ir.Module)
    diag = first_ops(module)[0]
    assert isinstance(diag, DiagOp)
    assert "tag" in diag.attributes
    assert str(diag.location) == 'loc("given/name.mlir":2:8)'
    assert str(module.body.operations[0].regions[0].blocks[0].arguments[1].location) == 'loc("given/name.mlir":1:33)'


def test_ops_of_ours_are_printed_without_a_current_context():
    """Upstream verifies what it prints, and our verifiers make types to compare with."""
    text = "func.func @f(%x: f32) {\n  %word = pair.pack %x, %x : (f32, f32) -> (i32)\n  return\n}"
    with make_context():
        module = parse_module(text, "f.mlir")
    assert "pair.pack" in print_module(module)


def test_print_in_custom_and_generic_form(context):
    module = parse_module(DIAG, "f.mlir")
    assert "linalg_ext.diag {tag} ins(%arg0 : tensor<3xf32>) outs(" in print_module(module)
    assert '"linalg_ext.diag"(%arg0, %arg1) {tag} :' in print_module(module, generic=True)
    assert 'loc("f.mlir":2:8)' in print_module(module, debug_info=True, local_scope=True)


def test_print_op_is_one_line_without_aliases(context):
    module = parse_module(DIAG.replace("{tag}", "{map = affine_map<(d0) -> (d0)>}"), "f.mlir")
    assert print_op(first_ops(module)[0]) == (
        "%0 = linalg_ext.diag {map = affine_map<(d0) -> (d0)>} ins(%arg0 : tensor<3xf32>) "
        "outs(%arg1 : tensor<3x3xf32>) : tensor<3x3xf32>"
    )
    assert "\n" not in print_op(module.body.operations[0])


@pytest.mark.parametrize(
    "text, line, col, message",
    [
        (DIAG.replace("ins", "inns"), 2, 30, "'linalg_ext.diag': expected 'ins' but found 'inns'"),
        (DIAG.replace("%o :", "%y :"), 2, 59, "use of undeclared SSA value name"),
        (DIAG.replace("outs(%o", "\n\n  outs(%y"), 4, 8, "use of undeclared SSA value name"),
        (DIAG.replace("return", "retrun"), 3, 3, "custom op 'retrun' is unknown"),
        (DIAG.replace("3x3xf32>", "3x2xf32>"), 2, 8, "expects dimension 1 of output to be 3"),
        (DIAG.rstrip().removesuffix("}"), 3, 30, "expected operation name in quotes"),
        (DIAG.replace("{tag}", "{tag"), 2, 24, "'linalg_ext.diag': "),
    ],
)
def test_errors_are_at_places_of_the_source(context, text, line, col, message):
    with pytest.raises(AssemblyError) as caught:
        parse_module(text, "bad.mlir")
    found = caught.value.diagnostics[0]
    assert (found.severity, found.file) == ("error", "bad.mlir")
    assert message in found.message
    assert found.line == line
    assert found.col == col or message.endswith(": ")


def test_errors_come_with_their_notes(context):
    with pytest.raises(AssemblyError) as caught:
        parse_module("func.func @f() {\n  unheard.of\n}", "bad.mlir")
    assert caught.value.diagnostics[0].notes[0].message.startswith("Available dialects")
    assert str(caught.value).startswith("bad.mlir:2:3: error: Dialect `unheard'")


@pytest.mark.parametrize("opener, closer", ["()", "[]", "{}", "<>", ("{x = [", "]}"), ("module {", "}")])
def test_deep_nesting_is_refused_before_upstreams_parser_overflows(context, opener, closer):
    with pytest.raises(AssemblyError, match=r"bad.mlir:2:\d+: error: brackets are nested more than 500 deep"):
        parse_module(f"module {{\n{opener * 30000}{closer * 30000}\n}}", "bad.mlir")
    depth = 490
    module = parse_module("module {" * depth + "}" * depth, "good.mlir")
    assert print_module(module).count("module {") == depth


def test_columns_count_bytes_like_upstream(context):
    text = DIAG.replace("{tag}", '{tag = "ü"}').replace("%o :", "%y :")
    with pytest.raises(AssemblyError) as caught:
        parse_module(text, "bad.mlir")
    line = text.split("\n")[1]
    assert caught.value.diagnostics[0].col == len(line[: line.index("%y")].encode()) + 1


def test_windows_line_ends_and_tabs(context):
    module = parse_module(DIAG.replace("\n", "\r\n").replace("  ", "\t"), "f.mlir")
    assert print_module(module) == print_module(parse_module(DIAG, "f.mlir"))


def test_what_custom_form_cannot_say_is_printed_in_generic_form():
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse('"linalg_ext.diag"() ({}) {tag} : () -> ()')
        assert '"linalg_ext.diag"() ({' in print_module(module)
        module = ir.Module.parse('%0 = "linalg_ext.softmax"() {dimension = 1 : i64} : () -> i32')
        assert '"linalg_ext.softmax"()' in print_module(module)


def test_resources_are_kept(context):
    text = "module attributes {a.b = dense_resource<blob> : tensor<2xf32>} {\n" + DIAG + "}\n"
    text += '{-#\n  dialect_resources: {\n    builtin: {\n      blob: "0x040000000000803F00000040"\n    }\n  }\n#-}\n'
    module = parse_module(text, "f.mlir")
    assert 'blob: "0x040000000000803F00000040"' in print_module(module)


@pytest.mark.parametrize(
    "text", ["$nothing", "`a` type($nothing)", "(`a`", "`a` )?", "`a` attr-dickt", "`a", "( `:` type(results)"]
)
def test_a_wrong_format_is_a_bug_of_the_dialect(text):
    with pytest.raises(FormatError):
        parse_format(DiagOp, text)


def test_every_op_of_ours_has_a_form():
    assert {name.partition(".")[0] for name in forms()} >= {"linalg_ext", "transform_ext"}
    assert forms()["transform_ext.cleanup"].bare_name == "cleanup"
