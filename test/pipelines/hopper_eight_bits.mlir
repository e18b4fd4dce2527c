// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to=nvidia --print-ir-after=assign-layouts,keep-maximum,specialize-warps 2>&1 | FileCheck %s
// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_90a" --lower-to="nvidia{keep-maximum=0}" --print-ir-after=rescale-rarely -o /dev/null 2>&1 | FileCheck %s --check-prefix=ONLINE
// RUN: attn-opt %s --raise-attention --fuse-attention="machine=sm_80" --lower-to="nvidia{arch=sm_80}" | FileCheck %s --check-prefix=WIDE

// Matmuls of 8 bits on Hopper. A thread has pairs of probabilities; keys of values are in that order, side by side.

// CHECK-LABEL: (assign-layouts) //-----
// CHECK:      scf.for
// CHECK:        %[[Q:.*]] = tile.load {{.*}} -> (tensor<128x128xf8E4M3FN, "shared">)
// CHECK:        %[[K:.*]] = tile.load {{.*}} -> (tensor<128x128xf8E4M3FN, "shared">)
// CHECK:        linalg.generic {{.*}} ins(%[[Q]], %[[K]] :
// CHECK:        %[[V:.*]] = tile.load {{.*}} -> (tensor<128x128xf8E4M3FN, "paired">)
// CHECK:        %[[P:.*]] = tile.convert_layout %{{.*}} : (tensor<128x128xf8E4M3FN, "fragment">) -> (tensor<128x128xf8E4M3FN, "paired_a">)
// CHECK:        linalg.generic {{.*}} ins(%[[P]], %[[V]] :

// Probabilities are multiplied with 256: of the first maximum 2^-3 remains, which becomes 2^5. Where what a thread adds up
// is 448 / 256 or more the sum is infinite, which is seen behind the loop.
// CHECK-LABEL: (keep-maximum) //-----
// CHECK:      arith.constant 3.0
// CHECK:      scf.for
// CHECK:        tile.limit = 1.750000e+00 : f32
// CHECK:        math.exp2
// CHECK:      tile.any

// Online: of the largest one of a tile 2^-3 remains, which 2^3 more may exceed.
// ONLINE:      %[[LESS:.*]] = arith.constant -3.0
// ONLINE-NEXT: arith.subf %{{.*}}, %[[LESS]] : f32
// ONLINE:      scf.for
// ONLINE:        %[[LESS:.*]] = arith.constant -3.0
// ONLINE-NEXT:   %[[M:.*]] = arith.subf %{{.*}}, %[[LESS]] : f32
// ONLINE-NEXT:   %[[THREE:.*]] = arith.constant 3.0
// ONLINE-NEXT:   %[[LIMIT:.*]] = arith.addf %{{.*}}, %[[THREE]] : f32
// ONLINE-NEXT:   arith.cmpf ogt, %[[M]], %[[LIMIT]] : f32

// Values land in one buffer, and go on to another one by three warps beside the one that copies.
// CHECK-LABEL: (specialize-warps) //-----
// CHECK:      tile.init_barriers %[[LEFT:.*]] {arrivals = 3
// CHECK-NEXT: %[[BUFFER:.*]] = memref.alloc() : memref<3x128x128xf8E4M3FN, #gpu.address_space<workgroup>>
// CHECK-NEXT: %[[READY:.*]] = memref.alloc() : memref<3xi64
// CHECK-NEXT: %[[FREE:.*]] = memref.alloc() : memref<3xi64
// CHECK-NEXT: tile.init_barriers %[[READY]] {arrivals = 3
// CHECK-NEXT: tile.init_barriers %[[FREE]] {arrivals = 8
// CHECK:      tile.set_registers {count = 232
// CHECK:      tile.limit = 1.750000e+00 : f32
// CHECK:      tile.meet {tile.all_warps}
// CHECK:      tile.set_registers {count = 40
// CHECK:      tile.wait_barrier %[[LEFT]] [%{{.*}}] {behind = 1
// CHECK-NEXT: tile.copy_bulk (%{{[a-z0-9]+}}, %[[LANDING:[a-z0-9_]+]], %[[COPIED:[a-z0-9_]+]],
// CHECK:      tile.wait_barrier %[[COPIED]] [%[[N:[a-z0-9_#]+]]] {behind = 0
// CHECK-NEXT: tile.wait_barrier %[[FREE]] [%[[N]]] {behind = 1
// CHECK:      %[[STAGE:.*]] = arith.remui %[[N]],
// CHECK-NEXT: %[[TILE:.*]] = tile.view %[[LANDING]] [%[[STAGE]]] : {{.*}} "shared">)
// CHECK-NEXT: tile.arrange %[[TILE]], %[[BUFFER]] [%[[STAGE]]] {inner = 0
// CHECK-NEXT: tile.arrive %[[READY]] [%[[N]]]
// CHECK-NEXT: tile.arrive %[[LEFT]] [%[[N]]]

// The code.
// CHECK-LABEL: llvm.func @f_0(
// CHECK:      wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3
// CHECK-NOT:  f16.f16
// CHECK:      cvt.rn.satfinite.e4m3x2.f32
// CHECK:      ldmatrix.sync.aligned.m8n8.x4.trans
// CHECK:      prmt.b32
// CHECK:      stmatrix.sync.aligned.m8n8.x4

// WIDE-NOT:  e4m3
// WIDE:      mma.sync.aligned.m16n8k16.row.col.f32.f16.f16
func.func @f(%q: tensor<64x4096x128xf8E4M3FN>, %k: tensor<64x4096x128xf8E4M3FN>, %v: tensor<64x4096x128xf8E4M3FN>) -> tensor<64x4096x128xf16> {
%z = arith.constant 0.0 : f32
%ninf = arith.constant 0xFF800000 : f32
%c = arith.constant 0.08838834764831845 : f32
%e = tensor.empty() : tensor<64x4096x4096xf32>
%f = linalg.fill ins(%z : f32) outs(%e : tensor<64x4096x4096xf32>) -> tensor<64x4096x4096xf32>
%s = linalg.generic {indexing_maps = [affine_map<(b,i,j,d)->(b,i,d)>, affine_map<(b,i,j,d)->(b,j,d)>, affine_map<(b,i,j,d)->(b,i,j)>], iterator_types=["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<64x4096x128xf8E4M3FN>, tensor<64x4096x128xf8E4M3FN>) outs(%f : tensor<64x4096x4096xf32>) {
  ^bb0(%a: f8E4M3FN, %b: f8E4M3FN, %o: f32):
    %0 = arith.extf %a : f8E4M3FN to f32
    %1 = arith.extf %b : f8E4M3FN to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x4096x4096xf32>
%ss = linalg.generic {indexing_maps = [affine_map<(b,i,j)->(b,i,j)>, affine_map<(b,i,j)->(b,i,j)>], iterator_types=["parallel", "parallel", "parallel"]} ins(%s : tensor<64x4096x4096xf32>) outs(%e : tensor<64x4096x4096xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %c : f32

    linalg.yield %0 : f32
  } -> tensor<64x4096x4096xf32>
%p = linalg.softmax dimension(2) ins(%ss : tensor<64x4096x4096xf32>) outs(%e : tensor<64x4096x4096xf32>) -> tensor<64x4096x4096xf32>
%pe = tensor.empty() : tensor<64x4096x4096xf8E4M3FN>
%r = arith.constant 256.0 : f32
%ri = arith.constant 0.00390625 : f32
%p8 = linalg.generic {indexing_maps = [affine_map<(b,i,j)->(b,i,j)>, affine_map<(b,i,j)->(b,i,j)>], iterator_types=["parallel", "parallel", "parallel"]} ins(%p : tensor<64x4096x4096xf32>) outs(%pe : tensor<64x4096x4096xf8E4M3FN>) {
  ^bb0(%a: f32, %o: f8E4M3FN):
    %0 = arith.mulf %a, %r : f32
    %1 = arith.truncf %0 : f32 to f8E4M3FN
    linalg.yield %1 : f8E4M3FN
  } -> tensor<64x4096x4096xf8E4M3FN>
%oe = tensor.empty() : tensor<64x4096x128xf32>
%of = linalg.fill ins(%z : f32) outs(%oe : tensor<64x4096x128xf32>) -> tensor<64x4096x128xf32>
%o = linalg.generic {indexing_maps = [affine_map<(b,i,d,j)->(b,i,j)>, affine_map<(b,i,d,j)->(b,j,d)>, affine_map<(b,i,d,j)->(b,i,d)>], iterator_types=["parallel", "parallel", "parallel", "reduction"]} ins(%p8, %v : tensor<64x4096x4096xf8E4M3FN>, tensor<64x4096x128xf8E4M3FN>) outs(%of : tensor<64x4096x128xf32>) {
  ^bb0(%a: f8E4M3FN, %b: f8E4M3FN, %o: f32):
    %0 = arith.extf %a : f8E4M3FN to f32
    %1 = arith.extf %b : f8E4M3FN to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x4096x128xf32>
%he = tensor.empty() : tensor<64x4096x128xf16>
%h = linalg.generic {indexing_maps = [affine_map<(b,i,j)->(b,i,j)>, affine_map<(b,i,j)->(b,i,j)>], iterator_types=["parallel", "parallel", "parallel"]} ins(%o : tensor<64x4096x128xf32>) outs(%he : tensor<64x4096x128xf16>) {
  ^bb0(%a: f32, %x: f16):
    %0 = arith.mulf %a, %ri : f32
    %1 = arith.truncf %0 : f32 to f16
    linalg.yield %1 : f16
  } -> tensor<64x4096x128xf16>
return %h : tensor<64x4096x128xf16>
}
