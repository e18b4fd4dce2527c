// RUN: attn-opt %s --verify-diagnostics -o /dev/null

module attributes {transform.with_named_sequence} {
  // expected-warning @+1 {{op argument #0 is not consumed in the body but is marked as consumed}}
  transform.named_sequence @f(%arg0: !transform.any_op {transform.consumed}) { cleanup transform.yield }
}
