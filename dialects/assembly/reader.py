"""Custom assembly to generic form, in the text, for upstream's parser to read.

    %1:4 = linalg_ext.softmax dimension(1) ins(%x : …) outs(%o, %m, %a, %s : …) {tag}

becomes, on the same line,

    %1:4 = "linalg_ext.softmax"(%x, %o, %m, %a, %s) {tag, dimension = 1} : (…) -> (…)
"""

import dataclasses
import difflib
import re

from . import legacy
from .formats import AttrDict, Attribute, Element, Form, FunctionalType, Group, Literal, Operand, Types, dialects
from .lexer import ONE_RESULT, RESULT_LIST, Source, SyntaxProblem
from .source_map import Rewriting, SourceMap
from .value_types import ValueTypes

Span = tuple[int, int]

_TRANSFORM_REGION = r"transform\.(?:named_)?sequence\b"
_PUNCTUATION = frozenset("(){}[]<>,:=*+?|-")
MOST_RESULTS = 1000  # of an op of ours


@dataclasses.dataclass
class _Read:
    """What was read of one op."""

    operands: dict[str, list[Span]] = dataclasses.field(default_factory=dict)
    operand_types: dict[str, list[Span]] = dataclasses.field(default_factory=dict)
    result_types: list[Span] | None = None
    common_type: Span | None = None
    input_types: list[Span] | None = None
    attributes: dict[str, Span] = dataclasses.field(default_factory=dict)
    entries: list[Span] = dataclasses.field(default_factory=list)
    keys: set[str] = dataclasses.field(default_factory=set)


class Reader:
    """Rewrites one text."""

    def __init__(self, text: str, forms: dict[str, Form]):
        self.source = Source(text)
        self.forms = {form.name: form for form in forms.values()}
        self.forms.update({form.op: form for form in forms.values()})
        self.bare = {form.bare_name: form for form in forms.values() if form.bare_name}
        self.value_types = ValueTypes(self.source)
        self.out = Rewriting(self.source)
        self.changed: set[int] = set()

    def run(self) -> tuple[str, SourceMap]:
        """The text in generic form, and the map back. Raises SyntaxProblem."""
        self.source.check_depth()
        last = 0
        edits: list[tuple[int, Form | str]] = [*self._ops(), *legacy.insertions(self.source)]
        for start, edit in sorted(edits, key=lambda one: one[0]):
            if start < last:
                continue
            self.out.copy(last, start)
            if isinstance(edit, str):
                self.out.put(edit, start)
                self.changed.add(self.source.line_of(start))
                last = start
            else:
                last = self._rewrite(start, edit)
        self.out.copy(last, len(self.source.text))
        text = self.out.text()
        return text, SourceMap(self.out, text, self.changed)

    def _ops(self) -> list[tuple[int, Form]]:
        """Where ops in custom form start. Our own dialects' names that are no op's are reported here."""
        mask = self.source.mask
        own = sorted(dialects())
        if not own:
            return []
        names = "|".join(sorted(map(re.escape, self.forms), key=len, reverse=True)) or "(?!)"
        pattern = re.compile(rf"(?<![\w$.\-#!@%^\"])(?:({names})|((?:{'|'.join(own)})\.[\w$.]+))(?![\w$.])")
        found: list[tuple[int, Form]] = []
        for match in pattern.finditer(mask):
            if not self._is_op(match.start(), match.end()):
                continue
            if match.group(2):
                self._unknown(match.start(2), match.group(2))
            found.append((match.start(), self.forms[match.group(1)]))
        if any(word in mask for word in self.bare):
            found += self._bare_ops()
        return found

    def _is_op(self, start: int, end: int) -> bool:
        """Whether the name at [start, end) is in the place of an op, not the key of an attribute."""
        after = self._peek(end)
        if after in ("=", ",", "]") or (after == "}" and self._before(start) in ("{", ",")):
            return False
        return self._before(start) not in (",", "[", "<", "->")

    def _before(self, start: int) -> str:
        text = self.source.mask[:start].rstrip() if start < 200 else self.source.mask[start - 200 : start].rstrip()
        return "->" if text.endswith("->") else text[-1:]

    def _unknown(self, at: int, name: str) -> None:
        close = difflib.get_close_matches(name, self.forms, n=1)
        raise SyntaxProblem(at, f"unknown op '{name}'" + (f"; did you mean '{close[0]}'?" if close else ""))

    def _bare_ops(self) -> list[tuple[int, Form]]:
        """Ops named without their dialect, as they may be in the regions of a transform script."""
        mask = self.source.mask
        words = "|".join(map(re.escape, self.bare))
        pattern = re.compile(
            rf"(?P<region>(?<![\w$.])(?:{_TRANSFORM_REGION}))|(?P<open>{{)|(?P<close>}})"
            rf"|(?<![\w$.\-#!@%^])(?P<word>{words})(?![\w$.\-])"
        )
        found: list[tuple[int, Form]] = []
        depth = 0
        scripts: list[int] = []  # depths of the transform.sequence ops we are in
        for match in pattern.finditer(mask):
            kind = match.lastgroup
            if kind == "region":
                scripts.append(depth)
            elif kind == "open":
                depth += 1
            elif kind == "close":
                depth -= 1
                after = self._peek(match.end())
                # `{` may be the region after an attribute dictionary; `)` and `,` follow an argument's dictionary.
                if scripts and depth <= scripts[-1] and after not in ("{", ")", ",", ":"):
                    scripts.pop()
            elif scripts and depth > scripts[-1] and self._starts_statement(match.start(), match.end()):
                found.append((match.start(), self.bare[match.group("word")]))
        return found

    def _starts_statement(self, start: int, end: int) -> bool:
        """Whether the word at [start, end) in a transform script is an op, not an attribute of another op."""
        before, after = self._before(start), self._peek(end)
        if before in (",", "=", "(", "[", "<", "->") or after in ("=", ",", ":"):
            return False
        line = self.source.mask.rfind("\n", 0, start) + 1
        one_line = self.source.mask.find("\n", line, self.source.skip_blank(end)) < 0
        return not (before == "{" and after == "}" and "{" in self.source.mask[line:start] and one_line)

    def _rewrite(self, start: int, form: Form) -> int:
        """Writes the op at `start` in generic form; the offset after it."""
        name_end = re.compile(r"[\w$.]+").match(self.source.mask, start).end()  # type: ignore[union-attr]
        read = _Read()
        try:
            end = self._read_elements(form, form.elements, read, self._read_dict(read, name_end))
            end = self._read_dict(read, end)
            if read.result_types is None and read.common_type is None and self._peek(end) == ":":
                colon = self.source.skip_blank(end)
                raise SyntaxProblem(colon, "expected the end of the op but found ':'")
            self._check_counts(form, read, end)
        except SyntaxProblem as problem:
            raise SyntaxProblem(problem.at, f"'{form.name}': {problem.message}") from None
        self._emit(form, read, start)
        self.out.pad(start, end)
        self.changed |= {self.source.line_of(start), self.source.line_of(end)}
        return end

    def _peek(self, at: int) -> str:
        at = self.source.skip_blank(at)
        return self.source.mask[at : at + 1]

    def _read_dict(self, read: _Read, at: int) -> int:
        start = self.source.skip_blank(at)
        if not self.source.mask.startswith("{", start):
            return at
        entries, end = self.source.dictionary(start)
        for key, entry, _, stop in entries:
            if key in read.keys or key in read.attributes:
                raise SyntaxProblem(entry, f"attribute '{key}' occurs more than once")
            read.keys.add(key)
            read.entries.append((entry, stop))
        return end

    def _read_elements(self, form: Form, elements: tuple[Element, ...], read: _Read, at: int) -> int:
        for element in elements:
            at = self._read_element(form, element, read, at)
        return at

    def _read_element(self, form: Form, element: Element, read: _Read, at: int) -> int:
        source = self.source
        start = source.skip_blank(at)
        if isinstance(element, Literal):
            return at if not element.text.strip() else self._read_literal(element.text, start)
        if isinstance(element, Operand):
            return self._read_operands(element, read, start)
        if isinstance(element, Attribute):
            end = source.end_of_attribute(start)
            if element.name in read.keys:
                raise SyntaxProblem(start, f"attribute '{element.name}' occurs more than once")
            read.attributes[element.name] = (start, end)
            return end
        if isinstance(element, AttrDict):
            return self._read_dict(read, at)
        if isinstance(element, Types):
            return self._read_types(element, read, start)
        if isinstance(element, FunctionalType):
            return self._read_functional_type(read, start)
        if element.elements[0] == Literal(":"):  # the types at the end; attributes may stand before and after them
            at = self._read_dict(read, at)
            start = source.skip_blank(at)
        return self._read_elements(form, element.elements, read, at) if self._group_is_there(element, start) else at

    def _group_is_there(self, group: Group, at: int) -> bool:
        first = next(e for e in group.elements if not (isinstance(e, Literal) and not e.text.strip()))
        if isinstance(first, Literal):
            return self.source.mask.startswith(first.text, at)
        if isinstance(first, AttrDict):
            return self.source.mask.startswith("{", at)
        return self.source.end_of_value_id(at) is not None

    def _read_literal(self, text: str, start: int) -> int:
        end = start + len(text)
        whole = text[-1] in _PUNCTUATION or not re.compile(r"[\w$.]").match(self.source.mask, end)
        if not (self.source.mask.startswith(text, start) and whole):
            raise SyntaxProblem(start, f"expected '{text}' but found {self.source.found(start)}")
        return end

    def _read_operands(self, element: Operand, read: _Read, start: int) -> int:
        found = read.operands.setdefault(element.name, [])
        at = start
        while True:
            end = self.source.end_of_value_id(at)
            if end is None:
                if element.variadic and not found:
                    return start
                what = f"an operand, {element.name}," if not element.variadic else "an operand"
                raise SyntaxProblem(at, f"expected {what} but found {self.source.found(at)}")
            found.append((at, end))
            comma = self.source.skip_blank(end)
            if not element.variadic or not self.source.mask.startswith(",", comma):
                return end
            at = self.source.skip_blank(comma + 1)

    def _read_type_list(self, at: int) -> tuple[list[Span], int]:
        types = []
        while True:
            end = self.source.end_of_type(at)
            types.append((at, end))
            comma = self.source.skip_blank(end)
            if not self.source.mask.startswith(",", comma):
                return types, end
            at = self.source.skip_blank(comma + 1)

    def _read_types(self, element: Types, read: _Read, start: int) -> int:
        if not element.names and self.source.mask.startswith("(", start):
            end = self.source.end_of_brackets(start)
            if not self.source.mask.startswith("->", self.source.skip_blank(end)):
                read.result_types = list(self.source.split(start + 1, end - 1))
                return end
        types, end = self._read_type_list(start)
        if not element.names:
            read.result_types = types
            return end
        expected = sum(len(read.operands.get(name, ())) for name in element.names)
        if len(types) != expected:
            plural = "" if expected == 1 else "s"
            raise SyntaxProblem(start, f"expected {expected} type{plural}, one per operand, but found {len(types)}")
        for name in element.names:
            count = len(read.operands[name])
            read.operand_types[name], types = types[:count], types[count:]
        return end

    def _read_functional_type(self, read: _Read, start: int) -> int:
        source = self.source
        if not source.mask.startswith("(", start):
            end = source.end_of_type(start)
            read.common_type = (start, end)
            return end
        inner = source.end_of_brackets(start)
        read.input_types = list(source.split(start + 1, inner - 1))
        arrow = self._read_literal("->", source.skip_blank(inner))
        at = source.skip_blank(arrow)
        if source.mask.startswith("(", at):
            end = source.end_of_brackets(at)
            read.result_types = list(source.split(at + 1, end - 1))
            return end
        end = source.end_of_type(at)
        read.result_types = [(at, end)]
        return end

    def _check_counts(self, form: Form, read: _Read, at: int) -> None:
        def check(types: list[Span], expected: int, what: str) -> None:
            if len(types) != expected:
                plural = "" if expected == 1 else "s"
                where = types[0][0] if types else at
                raise SyntaxProblem(where, f"expected {expected} {what} type{plural} but found {len(types)}")

        if read.input_types is not None:
            check(read.input_types, sum(map(len, read.operands.values())), "operand")
        if read.result_types is not None and form.results is not None:
            check(read.result_types, form.results, "result")

    def _left_hand_side(self, start: int) -> tuple[int, int]:
        """The offset and the number of the result names before an op at `start`; (-1, 0) if there are none."""
        window = max(0, start - 4000)
        names = RESULT_LIST.search(self.source.mask[window:start])
        if not names:
            return -1, 0
        one_by_one = ONE_RESULT.finditer(names.group(1))
        return window + names.start(1), sum(int(one.group(2) or 1) for one in one_by_one)

    def _result_count(self, form: Form, read: _Read, start: int) -> tuple[int, int]:
        at, count = self._left_hand_side(start)
        if form.results is not None:
            return at, form.results
        if at >= 0:
            if count > MOST_RESULTS:  # a type is written for each
                raise SyntaxProblem(at, f"expected at most {MOST_RESULTS} results but found {count}")
            return at, count
        # Unused handles: the transformed op and one loop per nonzero tile size.
        entries = [self.source.clean[a:b] for a, b in read.entries]
        sizes = next((e for e in entries if re.match(r"\"?tile_sizes\"?\s*=", e)), "")
        numbers = re.findall(r"(?<![\w.])-?\d+(?![\w.])", sizes.partition("=")[2].replace(": i64", ""))
        return at, 1 + sum(int(number) != 0 for number in numbers)

    def _emit(self, form: Form, read: _Read, start: int) -> None:
        out, clean = self.out, self.source.clean
        operands = [span for operand in form.operands for span in read.operands.get(operand.name, ())]
        out.put(f'"{form.op}"', start)
        self._emit_list("(", operands, ")", start)
        attributes = [(f"{name} = ", span) for name, span in read.attributes.items()]
        attributes = [("", span) for span in read.entries] + attributes
        named = read.keys | read.attributes.keys()
        defaults = [f"{name} = {value}" for name, value in form.defaults if name not in named]
        if attributes or defaults:
            out.put(" {", start)
            for i, (prefix, (a, b)) in enumerate(attributes):
                out.put((", " if i else "") + prefix, a)
                out.quote(a, b)
            out.put((", " if attributes and defaults else "") + ", ".join(defaults) + "}", start)

        types = read.input_types or [
            span for operand in form.operands for span in read.operand_types.get(operand.name, ())
        ]
        at, results = self._result_count(form, read, start)
        out.put(" : ", start)
        if len(types) == len(operands):
            self._emit_list("(", types, ")", start)
        elif read.common_type:
            self._emit_list("(", [read.common_type] * len(operands), ")", start)
        else:
            texts = [self.value_types.type_of(clean[a:b], start) for a, b in operands]
            out.put("(" + ", ".join(texts).replace("\n", " ") + ")", start)

        by_name = {name: span for name, spans in read.operand_types.items() for span in spans}
        inits = [by_name[name] for name in form.inits if name in by_name]
        result_types = read.result_types if read.result_types is not None else inits if form.inits else None
        if result_types is not None:
            texts = [clean[a:b] for a, b in result_types]
            self._emit_list(" -> (", result_types, ")", start)
        else:
            handle = clean[slice(*read.common_type)] if read.common_type else None
            if handle is None and operands:
                handle = self.value_types.type_of(clean[slice(*operands[0])], start)
            texts = [(handle or "").replace("\n", " ")] * results
            out.put(f" -> ({', '.join(texts)})", start)
        if at >= 0:
            self.value_types.define(at, texts)

    def _emit_list(self, opener: str, spans: list[Span], closer: str, start: int) -> None:
        self.out.put(opener, start)
        for i, (a, b) in enumerate(spans):
            if i:
                self.out.put(", ", a)
            self.out.quote(a, b)
        self.out.put(closer, start)
