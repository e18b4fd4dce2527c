// RUN: attn-opt %s --split-input-file --verify-diagnostics

transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  // expected-error @+1 {{expects a loop handle for each of the 2 nonzero tile sizes, but found 1}}
  %0, %loop = transform.structured.fuse_ext %arg0 {tile_sizes = [2, 4]}
}

// -----

transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  // expected-error @+1 {{use of undeclared SSA value name}}
  %0, %loop = transform.structured.fuse_ext %nothing {tile_sizes = [2, 0]}
}

// -----

transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  // expected-error @+1 {{'transform.structured.fuse_ext': expected an operand but found '{'}}
  %0, %loop = transform.structured.fuse_ext %arg0, {tile_sizes = [2, 0]}
}

// -----

func.func @no_transform_script() {
  // expected-error @+1 {{custom op 'cleanup' is unknown}}
  cleanup
}

// -----

transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  // expected-error @+1 {{'transform.structured.tile_ext' op expects attribute 'tile_sizes' to be of kind array, but found 3}}
  transform.structured.tile_ext %arg0 {tile_sizes = 3}
}

// -----

transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  // expected-error @+1 {{'transform.structured.fuse_ext' op expects the handle of the op to tile}}
  "transform_ext.fuse_ext"() {tile_sizes = [], tile_interchange = []} : () -> !pdl.operation
}

// -----

transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  // expected-error @+1 {{expected at most 1000 results but found 99999999999999999999}}
  %0, %loops:99999999999999999998 = transform.structured.fuse_ext %arg0 {tile_sizes = [2, 4]}
}

// -----

transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  // expected-error @+1 {{'transform.structured.fuse_ext' op has no attribute 'tile_size'; it has tile_sizes and tile_interchange}}
  %0 = transform.structured.fuse_ext %arg0 {tile_size = [2, 0]}
}

// -----

transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  %values = transform.get_result %arg0[0] : (!pdl.operation) -> !transform.any_value
  // expected-error @+1 {{'transform.structured.fuse_ext' op expects handles of ops, but found !transform.any_value}}
  %0, %loop = transform.structured.fuse_ext %values {tile_sizes = [2]}
}

// -----

transform.sequence failures(propagate) {
^bb0(%arg0: !pdl.operation):
  %values = transform.get_result %arg0[0] : (!pdl.operation) -> !transform.any_value
  // expected-error @+1 {{'transform.structured.tile_loop_hint' op expects handles of ops, but found !transform.any_value}}
  transform.structured.tile_loop_hint %values
}
