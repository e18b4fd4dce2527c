"""Random ops with random blanks, comments, attributes and locations survive parse -> print -> parse."""

import pytest
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module, print_module
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

# Between tokens: at least one of these, so that words stay apart.
blanks = st.sampled_from([" ", "  ", "\t", "\n", "\r\n ", ' // a comment: { " linalg_ext.diag\n', "\n// }>)\n  "])
dims = st.lists(st.integers(1, 9), min_size=1, max_size=4)
elements = st.sampled_from(["f16", "bf16", "f32", "f64"])

strings = st.text(st.characters(codec="utf-8", exclude_characters='"\\\n\r', exclude_categories=["C"]), max_size=8).map(
    lambda text: f'"{text}"'
)
leaves = st.one_of(
    st.integers(-99, 99).map(lambda n: f"{n} : i32"),
    st.integers(0, 99).map(str),
    st.sampled_from(
        [
            "true",
            "1.5 : f32",
            "0x7F800000 : f32",
            "affine_map<(d0, d1)[s0] -> (d0 mod 2 + s0, d1 floordiv 3)>",
            "affine_set<(d0) : (d0 - 1 >= 0, d0 - 4 == 0)>",
            "dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>",
            "dense<1.0> : vector<4xf32>",
            "array<i64: 1, -2>",
            "tensor<?x4xf32, affine_map<(d0, d1) -> (d1, d0)>>",
            "(i32, tensor<2xf32>) -> (f32, index)",
            "@symbol::@nested",
            "#arith.fastmath<fast>",
            "#alias",
            "!type",
            'loc("a->b":3:4)',
            '"\\22}>"',
            "unit",
        ]
    ),
    strings,
)
keys = st.one_of(
    st.sampled_from(
        ["tag", "__root__", "linalg_ext.diag", "a$b.c", '"with blank"', '"9"', "outs", "dimension_", "loc"]
    ),
    st.from_regex(r"[a-z_][a-z0-9_]{0,5}x", fullmatch=True),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(keys, inner, max_size=2).map(lambda d: f"{{{', '.join(f'{k} = {v}' for k, v in d.items())}}}"),
    ),
    max_leaves=4,
)
dictionaries = st.dictionaries(keys, st.one_of(st.none(), values), max_size=4)
locations = st.sampled_from(
    [
        "",
        ' loc("x.py":3:4)',
        ' loc("named")',
        ' loc("named"("y.py":1:2))',
        ' loc(fused<{a = "}"}>["a":1:2, callsite("f" at "g":3:4)])',
        " loc(unknown)",
        " loc(#where)",
    ]
)


@st.composite
def ops(draw):
    """The tokens of one op, without its result names, and the number of its results."""
    shape, element = draw(dims), draw(elements)
    dynamic = draw(st.booleans())

    def tensor(sizes):
        return "tensor<" + "".join("?x" if dynamic else f"{n}x" for n in sizes) + element + ">"

    attributes = draw(dictionaries)
    entries = [key if value is None else f"{key} = {value}" for key, value in attributes.items()]
    cut = draw(st.integers(0, len(entries)))
    first, last = [["{", ", ".join(part), "}"] if part else [] for part in (entries[:cut], entries[cut:])]
    kind = draw(st.sampled_from(["diag", "softmax", "unnorm_softmax", "batch_matmul"]))
    with_types = draw(st.booleans())
    if kind == "diag":
        x, o = tensor(shape), tensor([*shape, shape[-1]])
        tokens = ["ins", "(", f'"{x}"', ":", x, ")", "outs", "(", f'"{o}"', ":", o, ")"]
        results = [o]
    elif kind == "batch_matmul":
        batch, (m, n, k) = shape[:2], draw(st.tuples(*[st.integers(1, 9)] * 3))
        layout = draw(st.sampled_from(["nn", "nt", "tn", "tt"]))
        a = tensor([*batch, *([m, k] if layout[0] == "n" else [k, m])])
        b = tensor([*batch, *([k, n] if layout[1] == "n" else [n, k])])
        c = tensor([*batch, m, n])
        tokens = ["ins", "(", f'"{a}"', ",", f'"{b}"', ":", a, ",", b, ")", "outs", "(", f'"{c}"', ":", c, ")"]
        tokens += ["layout", "=", f'"{layout}"'.replace('"', "\x00")]
        results = [c]
    else:
        d = draw(st.integers(0, len(shape) - 1))
        x, row = tensor(shape), tensor([n for i, n in enumerate(shape) if i != d])
        tokens = ["dimension", "(", str(d), ")", "ins", "(", f'"{x}"', ":", x, ")", "outs", "("]
        tokens += [
            f'"{x}"',
            ",",
            f'"{row}"',
            ",",
            f'"{row}"',
            ",",
            f'"{row}"',
            ":",
            x,
            ",",
            row,
            ",",
            row,
            ",",
            row,
            ")",
        ]
        results = [x, row, row, row]
    tokens = [*first, *tokens, *last]
    if with_types:
        tokens += [":", *[token for kind in results for token in (",", kind)][1:]]
    return kind, tokens, len(results)


@st.composite
def modules(draw):
    arguments: dict[str, str] = {}
    body = []
    for number, (kind, tokens, results) in enumerate(draw(st.lists(ops(), min_size=1, max_size=3))):
        names = draw(st.sampled_from(["", f"%r{number} = " if results == 1 else f"%r{number}:{results} = "]))
        words = []
        for token in tokens:
            if token.startswith('"tensor<') and token.endswith('"'):  # stands for an operand of that type
                token = arguments.setdefault(token.strip('"'), f"%arg_{len(arguments)}")
            words.append(token.replace("\x00", '"'))
        text = "".join(draw(blanks) + word for word in words)
        body.append(f"  {names}linalg_ext.{kind}{text}{draw(locations)}\n")
    parameters = ", ".join(f"{name}: {kind}" for kind, name in arguments.items())
    return (
        '#alias = affine_map<(d0) -> (d0 + 1)>\n!type = tensor<3xf32>\n#where = loc("w.py":5:6)\n'
        f"func.func @f({parameters}) {{\n{''.join(body)}  return\n}}\n"
    )


@pytest.fixture(scope="module")
def context():
    with make_context() as context:
        context.enable_multithreading(False)
        yield context


@examples(150)
@given(text=modules())
def test_round_trip(context, text):
    module = parse_module(text, "random.mlir")
    printed = print_module(module)
    assert '"linalg_ext.' not in printed.replace('"linalg_ext.diag" =', "").replace('"linalg_ext.diag",', "")
    again = parse_module(printed, "again.mlir")
    assert print_module(again) == printed
    assert print_module(again, generic=True) == print_module(module, generic=True)
    located = print_module(module, debug_info=True)
    assert print_module(parse_module(located, "random.mlir"), debug_info=True) == located
    from_generic = parse_module(print_module(module, generic=True), "generic.mlir")
    assert print_module(from_generic) == printed


@examples(60)
@given(text=modules(), data=st.data())
def test_ops_are_located_where_their_names_stand(context, text, data):
    module = parse_module(text, "random.mlir")
    lines = text.encode().split(b"\n")
    for op in module.body.operations[0].regions[0].blocks[0].operations:
        location = op.location
        if "random.mlir" in str(location):
            line = lines[location.start_line - 1]
            assert line[location.start_col - 1 :].decode().startswith(op.operation.name.removeprefix("func."))


@examples(150)
@given(text=modules(), data=st.data())
def test_damaged_text_is_refused_or_read_but_never_crashes(context, text, data):
    from attn_opt.dialects.assembly import AssemblyError

    at = data.draw(st.integers(0, len(text) - 1))
    damaged = data.draw(st.sampled_from([text[:at], text[:at] + text[at + 1 :], text[:at] + "}" + text[at:]]))
    try:
        parse_module(damaged, "damaged.mlir")
    except AssemblyError as error:
        assert error.diagnostics
        for found in error.diagnostics:
            assert found.severity == "error"
            assert 1 <= found.line <= damaged.count("\n") + 1
