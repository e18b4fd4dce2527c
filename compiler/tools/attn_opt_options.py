"""The command line of ``attn-opt``: flags of its own, and every pass as a flag, in the order they are given."""

import dataclasses
import difflib
import re

from ...transforms import passes
from ..diagnostics import user_error
from ..ir_printing import PrintOptions
from ..pass_options import suggestion
from ..pipeline_text import Step, parse_items

HELP = """\
attn-opt: reads MLIR, runs passes on it, prints MLIR

usage: attn-opt [INPUT.mlir | -] [passes and options, in any order]

The input is a file, or standard input ('-' or nothing). IR goes to standard output, everything else to standard error.
Every pass, of attn-opt and of upstream MLIR, is an option: --NAME or --NAME="option=value option=value". Passes run in
the order they are given. The exit status is 1 if anything failed.

examples:
  attn-opt attention.mlir --fuse-attention="tile-sizes=4,0,8 tile-interchange=2,1,0"
  attn-opt multihead_attention.mlir --transform-interpreter --canonicalize --cse -o fused.mlir
  attn-opt attention.mlir --pass-pipeline="builtin.module(fuse-attention,func.func(linalg-generalize-named-ops),cse)"
  attn-opt attention.mlir --fuse-attention --lower-to=cpu --dump-stages stages/

passes:
  --NAME[="options"]             run this pass
  --pass-pipeline=PIPELINE       run these: builtin.module(NAME,NAME{option=value},func.func(NAME))
  --lower-to=cpu|nvidia          after the passes, lower to code for this target; with options:
                                 "cpu{threads=2 parts=4}", "nvidia{arch=sm_80}", "nvidia{keep-maximum=0 stages=3}"
  --list-passes                  list all passes with their options
  --verify-each=0                do not verify the IR after each pass

input and output:
  -o FILE                        write the IR to FILE
  --split-input-file             the input is several modules with lines '// -----' between them
  --allow-unregistered-dialect   accept ops of unknown dialects
  --verify-diagnostics           compare messages with comments 'expected-error {{...}}' and fail if they differ
                                 (also warning, remark, note; @+1, @-1, @above, @below, @unknown; -re)
  --mlir-print-op-generic        print ops in generic form
  --mlir-print-debuginfo         print locations
  --mlir-print-local-scope       print without aliases
  --mlir-elide-elementsattrs-if-larger=N
                                 leave out constants of more than N elements

watching:
  --print-ir-before=NAME,...     print the IR before these passes (also --mlir-print-ir-before)
  --print-ir-after=NAME,...      print the IR after these passes (also --mlir-print-ir-after)
  --print-ir-before-all, --print-ir-after-all, --print-ir-after-change, --print-ir-after-failure
  --dump-stages DIR              write the IR after each pass to DIR/NN-NAME.mlir
  --report FILE.html             write a page: what was found, fused and left, the tiles, the levels of the IR, times;
                                 FILE.svg: the picture of the tiles alone
  --remarks                      show remarks: what passes did or left alone, and why (warnings are always shown)
  --timing                       tell how long each pass took

  --help, --version"""


@dataclasses.dataclass
class Options:
    """What the command line asks for."""

    input: str = "-"
    output: str = "-"
    passes: list[Step | str] = dataclasses.field(default_factory=list)
    lower_to: str = ""
    action: str = ""  # "help", "version" or "list-passes" instead of a run
    split: bool = False
    allow_unregistered: bool = False
    verify_diagnostics: bool = False
    verify_each: bool = True
    remarks: bool = False
    timing: bool = False
    dump_stages: str = ""
    report: str = ""
    print_before: set[str] | None = dataclasses.field(default_factory=set)  # None: all
    print_after: set[str] | None = dataclasses.field(default_factory=set)
    print_after_change: bool = False
    print_after_failure: bool = False
    printing: PrintOptions = dataclasses.field(default_factory=PrintOptions)

    def prints_ir(self) -> bool:
        named = self.print_before != set() or self.print_after != set()
        return named or self.print_after_change or self.print_after_failure


# Flags without a value: the field that they set.
_SWITCHES = {
    "split-input-file": "split",
    "allow-unregistered-dialect": "allow_unregistered",
    "verify-diagnostics": "verify_diagnostics",
    "verify-each": "verify_each",
    "remarks": "remarks",
    "timing": "timing",
    "mlir-timing": "timing",
    "print-ir-after-change": "print_after_change",
    "print-ir-after-failure": "print_after_failure",
}
_PRINTING = {
    "mlir-print-op-generic": "generic",
    "mlir-print-debuginfo": "debug_info",
    "mlir-print-local-scope": "local_scope",
}
_ACTIONS = {"help": "help", "h": "help", "version": "version", "list-passes": "list-passes"}
_VALUES = (
    "o",
    "pass-pipeline",
    "lower-to",
    "dump-stages",
    "report",
    "print-ir-before",
    "print-ir-after",
    "mlir-elide-elementsattrs-if-larger",
)
_ALL = ("print-ir-before-all", "print-ir-after-all")
# What mlir-opt has and what is always so here.
_IGNORED = ("mlir-disable-threading", "mlir-print-ir-module-scope", "mlir-print-stacktrace-on-diagnostic")


def parse_options(arguments: list[str]) -> Options:
    """Options from the words of a command line. Raises DiagnosedError."""
    options = Options()
    inputs: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            inputs += words
        elif word == "-" or not word.startswith("-"):
            inputs.append(word)
        else:
            name, equals, value = word.lstrip("-").partition("=")
            known = name.removeprefix("mlir-") if name.startswith("mlir-print-ir") else name
            if known in _VALUES and not equals:
                following = next(words, None)
                if following is None:
                    raise user_error(f"option '{word}' expects a value")
                value = following
            _set(options, known, value if equals or known in _VALUES else None, word)
    if len(inputs) > 1:
        raise user_error(f"expected one input file but found {len(inputs)}: {' '.join(inputs)}")
    options.input = inputs[0] if inputs else "-"
    return options


def _set(options: Options, name: str, value: str | None, word: str) -> None:
    if name in _SWITCHES:
        setattr(options, _SWITCHES[name], _truth(value, word))
    elif name in _PRINTING:
        options.printing = dataclasses.replace(options.printing, **{_PRINTING[name]: _truth(value, word)})
    elif name in _ACTIONS:
        options.action = options.action or _ACTIONS[name]
    elif name in _ALL:
        setattr(options, "print_before" if name == _ALL[0] else "print_after", None)
    elif name in _VALUES:
        _set_value(options, name, value or "")
    elif name not in _IGNORED:
        _add_pass(options, name, value, word)


def _truth(value: str | None, word: str) -> bool:
    if value is None or value.lower() in ("1", "true"):
        return True
    if value.lower() in ("0", "false"):
        return False
    raise user_error(f"option '{word}' expects 0 or 1, but found '{value}'")


def _set_value(options: Options, name: str, value: str) -> None:
    if not value:
        raise user_error(f"option '--{name}' expects a value")
    if name == "o":
        options.output = value
    elif name == "pass-pipeline":
        parse_items(value)
        options.passes.append(value)
    elif name == "lower-to":
        if value.partition("{")[0] not in ("cpu", "nvidia"):
            raise user_error(f"option '--lower-to' expects cpu or nvidia, but found '{value}'")
        options.lower_to = value
    elif name == "dump-stages":
        options.dump_stages = value
    elif name == "report":
        options.report = value
    elif name == "mlir-elide-elementsattrs-if-larger":
        if not value.isdigit():
            raise user_error(f"option '--{name}' expects a number, but found '{value}'")
        options.printing = dataclasses.replace(options.printing, elide_larger_than=int(value))
    else:
        field = "print_before" if name == "print-ir-before" else "print_after"
        names = getattr(options, field)
        for one in value.split(","):
            if not _is_pass_name(one.strip()):
                raise user_error(f"option '--{name}': unknown pass '{one.strip()}'{suggestion(one.strip())}")
            if names is not None:
                names.add(one.strip())


def _add_pass(options: Options, name: str, value: str | None, word: str) -> None:
    if not _is_pass_name(name):
        pass_name, brace, _ = word.lstrip("-").partition("{")
        if brace and _is_pass_name(pass_name):
            raise user_error(
                f"unknown option '{word}'", f'options of a pass are written --{pass_name}="option=value …"'
            )
        raise user_error(f"unknown option '{word}'{_close_option(name)}", "attn-opt --help lists the options")
    text = (value or "").strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    options.passes.append(Step(name, text))


def _is_pass_name(name: str) -> bool:
    """Whether some pass may have this name; the bindings are asked later, and know better than the list."""
    from ..upstream_passes import UPSTREAM_PASSES

    if not re.fullmatch(r"[\w-]+", name):  # part of a pipeline's text, which the bindings would take as such
        return False
    if name in passes.names() or name in UPSTREAM_PASSES:
        return True
    from ...dialects.mlir import ir, passmanager

    with ir.Context():
        try:
            passmanager.PassManager.parse(f"builtin.module({name})")
        except ValueError as error:
            return "does not refer to a registered pass" not in str(error) and "expected" not in str(error)
    return True


def _close_option(name: str) -> str:
    from ..upstream_passes import UPSTREAM_PASSES

    known = [*_SWITCHES, *_PRINTING, *_ACTIONS, *_VALUES, *_ALL, *passes.names(), *UPSTREAM_PASSES]
    close = difflib.get_close_matches(name, known, n=2)
    return f"; did you mean {' or '.join('--' + one for one in close)}?" if close else ""
