// Behind another kernel, a warp of its own copies what no kernel writes, and does not wait for that kernel, as all others
// do. In a kernel that comes first no one waits.
// RUN: attn-opt %s --split-input-file --lower-to=nvidia --print-ir-after=specialize-warps,overlap-launches -o /dev/null 2>&1 | FileCheck %s

// CHECK-LABEL: (specialize-warps) //-----
// CHECK-LABEL: gpu.func @two_0
// CHECK-NOT:     griddepcontrol
// CHECK-LABEL: gpu.func @two_1(
// CHECK-SAME:    %{{[a-z0-9]*}}: memref<256x512xf16{{[^%]*}}, %{{[a-z0-9]*}}: memref<384x512xf16
// CHECK-SAME:    %[[Y:[a-z0-9]*]]: !nvgpu.tensormap.descriptor
// CHECK-SAME:    %[[W:[a-z0-9]*]]: !nvgpu.tensormap.descriptor
// CHECK:         tile.set_registers {count = 240
// CHECK-NEXT:    nvvm.griddepcontrol wait
// CHECK:         tile.set_registers {count = 24 :
// CHECK:         scf.if
// CHECK-NEXT:      nvvm.griddepcontrol wait
// CHECK-NOT:       tile.copy_bulk (%[[W]],
// CHECK:           tile.copy_bulk (%[[Y]],
// CHECK-NOT:       tile.copy_bulk
// CHECK:         } else {
// CHECK:           scf.if
// CHECK-NOT:         nvvm.griddepcontrol
// CHECK:             tile.copy_bulk (%[[W]],
// CHECK-NOT:         tile.copy_bulk
// CHECK:         gpu.return

// The waits are those that there are.
// CHECK-LABEL: (overlap-launches) //-----
// CHECK-LABEL: llvm.func @two_0
// CHECK-NEXT:    nvvm.griddepcontrol launch_dependents
// CHECK-NOT:     griddepcontrol
// CHECK-LABEL: llvm.func @two_1
// CHECK-NOT:     griddepcontrol
// CHECK:         setmaxnreg.{{.*}}240;
// CHECK-NEXT:    nvvm.griddepcontrol wait
// CHECK:         setmaxnreg.{{.*}}24;
// CHECK:         scf.if
// CHECK-NEXT:      nvvm.griddepcontrol wait
// CHECK-NOT:     griddepcontrol
// CHECK-LABEL: func.func @two
// CHECK:         @two_0
// CHECK-NOT:     tile.early
// CHECK:         @two_1
// CHECK-SAME:    tile.early

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (j, k)>
#c = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
func.func @two(%x: tensor<256x1024xf16>, %v: tensor<512x1024xf16>, %w: tensor<384x512xf16>) -> tensor<256x384xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<256x512xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<256x512xf32>) -> tensor<256x512xf32>
  %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %v : tensor<256x1024xf16>, tensor<512x1024xf16>) outs(%z : tensor<256x512xf32>) {
  ^bb0(%p: f16, %q: f16, %o: f32):
    %pw = arith.extf %p : f16 to f32
    %qw = arith.extf %q : f16 to f32
    %m = arith.mulf %pw, %qw : f32
    %r = arith.addf %o, %m : f32
    linalg.yield %r : f32
  } -> tensor<256x512xf32>
  %h = tensor.empty() : tensor<256x512xf16>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<256x512xf32>) outs(%h : tensor<256x512xf16>) {
  ^bb0(%p: f32, %o: f16):
    %r = arith.truncf %p : f32 to f16
    linalg.yield %r : f16
  } -> tensor<256x512xf16>
  %e2 = tensor.empty() : tensor<256x384xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<256x384xf32>) -> tensor<256x384xf32>
  %t = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%y, %w : tensor<256x512xf16>, tensor<384x512xf16>) outs(%z2 : tensor<256x384xf32>) {
  ^bb0(%p: f16, %q: f16, %o: f32):
    %pw = arith.extf %p : f16 to f32
    %qw = arith.extf %q : f16 to f32
    %m = arith.mulf %pw, %qw : f32
    %r = arith.addf %o, %m : f32
    linalg.yield %r : f32
  } -> tensor<256x384xf32>
  return %t : tensor<256x384xf32>
}

// -----

// What may be written to is copied by the warp that waits.
// CHECK-LABEL: (specialize-warps) //-----
// CHECK-LABEL: gpu.func @donated_1
// CHECK-NOT:     griddepcontrol
// CHECK-LABEL: (overlap-launches) //-----
// CHECK-LABEL: llvm.func @donated_1
// CHECK-NEXT:    nvvm.griddepcontrol wait
// CHECK-NOT:     griddepcontrol
// CHECK-LABEL: func.func @donated

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (j, k)>
#c = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
func.func @donated(%x: tensor<256x1024xf16>, %v: tensor<512x1024xf16>, %w: tensor<384x512xf16> {bufferization.writable = true}) -> tensor<256x384xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<256x512xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<256x512xf32>) -> tensor<256x512xf32>
  %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %v : tensor<256x1024xf16>, tensor<512x1024xf16>) outs(%z : tensor<256x512xf32>) {
  ^bb0(%p: f16, %q: f16, %o: f32):
    %pw = arith.extf %p : f16 to f32
    %qw = arith.extf %q : f16 to f32
    %m = arith.mulf %pw, %qw : f32
    %r = arith.addf %o, %m : f32
    linalg.yield %r : f32
  } -> tensor<256x512xf32>
  %h = tensor.empty() : tensor<256x512xf16>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<256x512xf32>) outs(%h : tensor<256x512xf16>) {
  ^bb0(%p: f32, %o: f16):
    %r = arith.truncf %p : f32 to f16
    linalg.yield %r : f16
  } -> tensor<256x512xf16>
  %e2 = tensor.empty() : tensor<256x384xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<256x384xf32>) -> tensor<256x384xf32>
  %t = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%y, %w : tensor<256x512xf16>, tensor<384x512xf16>) outs(%z2 : tensor<256x384xf32>) {
  ^bb0(%p: f16, %q: f16, %o: f32):
    %pw = arith.extf %p : f16 to f32
    %qw = arith.extf %q : f16 to f32
    %m = arith.mulf %pw, %qw : f32
    %r = arith.addf %o, %m : f32
    linalg.yield %r : f32
  } -> tensor<256x384xf32>
  return %t : tensor<256x384xf32>
}
