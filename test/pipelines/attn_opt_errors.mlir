// Bad input gives one message and exit status 1.

// RUN: not attn-opt no-such-file.mlir 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: {{^}}no-such-file.mlir: error: cannot be read: no such file or directory
// MISSING-NOT: {{.}}

// RUN: not attn-opt %S 2>&1 | FileCheck %s --check-prefix=FOLDER
// FOLDER: {{^/.*}}: error: cannot be read: is a directory

// RUN: printf '\377\376' | not attn-opt 2>&1 | FileCheck %s --check-prefix=BINARY
// BINARY: <stdin>:1:1: error: expected MLIR assembly, but found what is not UTF-8 text

// RUN: not attn-opt %s --cannonicalize 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: attn-opt: error: unknown option '--cannonicalize'; did you mean --canonicalize
// OPTION-NEXT: note: attn-opt --help lists the options

// RUN: not attn-opt %s --pass-pipeline="builtin.module(cse,linalg-generalise-named-ops)" 2>&1 | FileCheck %s --check-prefix=PASS
// PASS: attn-opt: error: unknown pass 'linalg-generalise-named-ops'; did you mean 'linalg-generalize-named-ops'
// PASS-NEXT: note: attn-opt --list-passes lists them

// RUN: not attn-opt %s --pass-pipeline="builtin.module(cse" 2>&1 | FileCheck %s --check-prefix=PIPELINE
// PIPELINE: attn-opt: error: pass pipeline: expected ',' or ')' but found its end at column 19
// PIPELINE-NEXT: note: builtin.module(cse
// PIPELINE-NEXT: ^

// RUN: not attn-opt %s --canonicalize="max-iteration=2" 2>&1 | FileCheck %s --check-prefix=PASS-OPTION
// PASS-OPTION: attn-opt: error: pass 'canonicalize' with options 'max-iteration=2': no such option max-iteration
// PASS-OPTION-NOT: {{.}}

// RUN: not attn-opt %s --canonicalize="max-iterations=two" 2>&1 | FileCheck %s --check-prefix=PASS-VALUE
// PASS-VALUE: attn-opt: error: pass 'canonicalize' with options 'max-iterations=two': {{.*}}'two' value invalid for long argument!
// PASS-VALUE-NOT: {{.}}

// RUN: not attn-opt %s --pass-pipeline="builtin.module(gpu.module(promote-buffers-to-stack))" 2>&1 | FileCheck %s --check-prefix=ANCHOR
// ANCHOR: attn-opt: error: pass 'promote-buffers-to-stack' runs on 'func.func', not on 'gpu.module'
// ANCHOR-NEXT: note: write --pass-pipeline="builtin.module(func.func(promote-buffers-to-stack))"

// RUN: not attn-opt %s --lower-to=tpu 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: attn-opt: error: option '--lower-to' expects cpu or nvidia, but found 'tpu'

// RUN: not attn-opt %s --lower-to="cpu{" 2>&1 | FileCheck %s --check-prefix=TARGET-BRACE
// TARGET-BRACE: attn-opt: error: --lower-to=cpu{: target 'cpu{' has one of the braces around its options, as in cpu{threads=2}

// RUN: not attn-opt %s "--lower-to=cpu{matrix=amx}" 2>&1 | FileCheck %s --check-prefix=TARGET-OPTION
// TARGET-OPTION: attn-opt: error: --lower-to=cpu{matrix=amx}: unknown matrix instructions 'amx'; known: amx-fp16

// RUN: not attn-opt %s "--canonicalize{max-iterations=1}" 2>&1 | FileCheck %s --check-prefix=BRACES
// BRACES: attn-opt: error: unknown option '--canonicalize{max-iterations=1}'
// BRACES-NEXT: note: options of a pass are written --canonicalize="option=value …"

// RUN: not attn-opt %s --- 2>&1 | FileCheck %s --check-prefix=DASHES
// DASHES: attn-opt: error: unknown option '---'

// RUN: not attn-opt %s %s 2>&1 | FileCheck %s --check-prefix=INPUTS
// INPUTS: attn-opt: error: expected one input file but found 2

// RUN: not attn-opt %s -o %t/no/such/folder/out.mlir 2>&1 | FileCheck %s --check-prefix=OUTPUT
// OUTPUT: out.mlir: error: cannot be written: no such file or directory

// RUN: not attn-opt %s -o 2>&1 | FileCheck %s --check-prefix=VALUE
// VALUE: attn-opt: error: option '-o' expects a value

// RUN: printf 'func.func @f() {\n  foo.bar\n}' | not attn-opt 2>&1 | FileCheck %s --check-prefix=PARSE
// PARSE: <stdin>:2:3: error: Dialect `foo' not found for custom op 'foo.bar'
// PARSE-NEXT: {{^}}  foo.bar
// PARSE-NEXT: {{^}}  ^
// PARSE-NEXT: note: Available dialects:

module {}
