"""Which ops are looked at as the end of an attention, by what stands before them."""

from attn_opt.dialects import make_context
from attn_opt.dialects.mlir import ir
from attn_opt.transforms.raising.candidates import Followers
from attn_opt.transforms.rewriting import ops_in

LAYERS = """
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @model(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>, %e: tensor<4x4xf32>, %r: tensor<4xf32>)
    -> tensor<4x4xf32> {
  %before = linalg.matmul {name = "before"}
      ins(%x, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %exp = linalg.exp
      ins(%before : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%exp : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %b = math.exp %a : f32
    %c = arith.addf %b, %a : f32
    linalg.yield %c : f32
  } -> tensor<4x4xf32>
  %sum = linalg.generic {name = "sum", indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<4x4xf32>) outs(%r : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.addf %a, %o : f32
    linalg.yield %b : f32
  } -> tensor<4xf32>
  %end = linalg.matmul {name = "end"}
      ins(%p, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %mixed = linalg.matmul {name = "mixed"}
      ins(%end, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %residual = linalg.add
      ins(%x, %mixed : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %after = linalg.matmul {name = "after"}
      ins(%residual, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %powers = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%before : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %two = arith.constant 2.0 : f32
    %b = math.powf %two, %a : f32
    linalg.yield %b : f32
  } -> tensor<4x4xf32>
  %of_powers = linalg.matmul {name = "of powers"}
      ins(%powers, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %squares = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%before : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %two = arith.constant 2.0 : f32
    %b = math.powf %a, %two : f32
    linalg.yield %b : f32
  } -> tensor<4x4xf32>
  %of_squares = linalg.matmul {name = "of squares"}
      ins(%squares, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %loop = scf.for %i = %c0 to %c4 step %c1 iter_args(%s = %after) -> tensor<4x4xf32> {
    %inner = linalg.matmul {name = "inner"}
      ins(%s, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
    scf.yield %inner : tensor<4x4xf32>
  }
  return %loop : tensor<4x4xf32>
}
"""


def test_what_follows_from_an_exponential_and_what_is_in_a_region():
    with make_context() as context:
        module = ir.Module.parse(LAYERS, context)
        followers = Followers(module.operation)
        named = {
            ir.StringAttr(op.attributes["name"]).value: op
            for op in ops_in(module.operation, "linalg.")
            if "name" in op.attributes
        }
        found = {name: op in followers for name, op in named.items()}
    # Behind a sum of terms, as that of a residual stream, there is no softmax whose values could be multiplied.
    assert found == {
        **{"before": False, "sum": True, "end": True, "mixed": True, "after": False, "inner": True},
        **{"of powers": True, "of squares": False},
    }
