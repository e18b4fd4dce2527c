// RUN: attn-opt %s --tiles-to-nvvm | FileCheck %s

// Functions of elements that the GPU has no instruction for; test/numeric/test_gpu_functions.py knows what they give.

gpu.module @kernels {
  // CHECK-LABEL: llvm.func @whole
  // CHECK: math.roundeven {{.*}} : f32
  gpu.func @whole() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %z = math.roundeven %y : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @magnitude
  // CHECK: math.absi {{.*}} : i32
  gpu.func @magnitude() kernel {
    %x = arith.constant dense<3> : tensor<64xi32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xi32, "row">) {
    ^bb0(%y: i32):
      %z = math.absi %y : i32
      linalg.yield %z : i32
    } -> tensor<64xi32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @rounded_down
  // CHECK: arith.divsi
  // CHECK: arith.remsi
  // CHECK: arith.select
  gpu.func @rounded_down() kernel {
    %x = arith.constant dense<3> : tensor<64xi32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xi32, "row">) {
    ^bb0(%y: i32):
      %c = arith.constant 7 : i32
      %z = arith.floordivsi %y, %c : i32
      linalg.yield %z : i32
    } -> tensor<64xi32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @decimal
  // CHECK: lg2.approx.f32 $0, $1;
  gpu.func @decimal() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %z = math.log10 %y : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @sine
  // CHECK: %[[TURNS:.*]] = math.fma
  // CHECK: arith.subf %[[TURNS]]
  // CHECK: %[[FLIP:.*]] = arith.shli
  // CHECK: arith.xori %{{.*}}, %[[FLIP]]
  gpu.func @sine() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %z = math.sin %y : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @angle
  // CHECK: arith.minimumf
  // CHECK: arith.maximumf
  // CHECK: div.full.f32
  // CHECK: math.copysign
  gpu.func @angle() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %z = math.atan %y : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @error
  // CHECK: ex2.approx.ftz.f32
  // CHECK: math.copysign
  gpu.func @error() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %z = math.erf %y : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @hyperbolic
  // CHECK: ex2.approx.ftz.f32
  // CHECK: div.full.f32
  gpu.func @hyperbolic() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %z = math.cosh %y : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @third
  // CHECK: %[[SQUARE:.*]] = arith.mulf %[[X:.*]], %[[X]]
  // CHECK: arith.mulf %[[X]], %[[SQUARE]]
  gpu.func @third() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %c = arith.constant 3.0 : f32
      %z = math.powf %y, %c : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @of_two
  // CHECK: ex2.approx.ftz.f32
  gpu.func @of_two() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %c = arith.constant 2.0 : f32
      %z = math.powf %c, %y : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @any_power
  // CHECK: ex2.approx.ftz.f32
  // CHECK: math.trunc
  gpu.func @any_power() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %z = math.powf %y, %y : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @remainder
  // CHECK: div.full.f32
  // CHECK: math.trunc
  // CHECK: math.fma
  gpu.func @remainder() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %c = arith.constant 3.0 : f32
      %z = arith.remf %y, %c : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @infinite
  // CHECK: arith.cmpf oeq, {{.*}} : f64
  gpu.func @infinite() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %w = arith.extf %y : f32 to f64
      %c = arith.constant 0x7FF0000000000000 : f64
      %b = arith.cmpf oeq, %w, %c : f64
      %z = arith.select %b, %y, %y : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }

  // CHECK-LABEL: llvm.func @not_a_number
  // CHECK: arith.cmpf uno
  gpu.func @not_a_number() kernel {
    %x = arith.constant dense<3.0> : tensor<64xf32, "row">
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<64xf32, "row">) {
    ^bb0(%y: f32):
      %b = math.isnan %y : f32
      %z = arith.select %b, %y, %y : f32
      linalg.yield %z : f32
    } -> tensor<64xf32, "row">
    gpu.return
  }
}
