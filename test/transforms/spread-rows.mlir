// RUN: attn-opt %s --spread-rows="vector-bytes=32" | FileCheck %s
// RUN: attn-opt %s --spread-rows="vector-bytes=32" --pack-contractions="vector-bytes=32" | FileCheck %s
// RUN: attn-opt %s --spread-rows="vector-bytes=64" | FileCheck %s --check-prefix=WIDE

#v = affine_map<(d, q, k) -> (k, d)>
#p = affine_map<(d, q, k) -> (k, q)>
#o = affine_map<(d, q, k) -> (d, q)>

// Of 64 probabilities a row, a register tile takes 16: the rows move apart by a line, and stay where they are.
// CHECK-LABEL: func.func @probabilities
// CHECK:     %[[BYTES:.*]] = memref.alloca() {alignment = 64 : i64} : memref<20480xi8>
// CHECK:     %[[VIEW:.*]] = memref.view %[[BYTES]][%{{.*}}][%arg2] : memref<20480xi8> to memref<?x80xf32>
// CHECK:     %[[P:.*]] = memref.subview %[[VIEW]][0, 0] [%arg2, 64] [1, 1] : memref<?x80xf32> to memref<?x64xf32, strided<[80, 1]>>
// CHECK:     memref.subview %[[P]][0, 32] [%arg2, 16] [1, 1] : {{.*}} to memref<?x16xf32, strided<[80, 1], offset: 32>>
// CHECK-NOT: memref.view
// CHECK:     linalg.generic {{.*}} ins(%arg0, %[[P]] : memref<?x64xf32>, memref<?x64xf32, strided<[80, 1]>>)
// With vectors of 64 bytes it takes all of them.
// WIDE-LABEL: func.func @probabilities
// WIDE:       memref.view %{{.*}} : memref<16384xi8> to memref<?x64xf32>
func.func @probabilities(%values: memref<?x64xf32>, %out: memref<64x64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %bytes = memref.alloca() {alignment = 64} : memref<16384xi8>
  %probs = memref.view %bytes[%c0][%n] : memref<16384xi8> to memref<?x64xf32>
  %some = memref.subview %probs[0, 32] [%n, 16] [1, 1] : memref<?x64xf32> to memref<?x16xf32, strided<[64, 1], offset: 32>>
  linalg.generic {indexing_maps = [affine_map<(k, q) -> ()>, affine_map<(k, q) -> (k, q)>], iterator_types = ["parallel", "parallel"]}
      ins(%one : f32) outs(%some : memref<?x16xf32, strided<[64, 1], offset: 32>>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  linalg.generic {indexing_maps = [#v, #p, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%values, %probs : memref<?x64xf32>, memref<?x64xf32>) outs(%out : memref<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}

// Memory that something else has a view of, too, stays as it is; so does what is not the task's own, which is packed.
// CHECK-LABEL: func.func @shared
// CHECK:     memref.alloca() {alignment = 64 : i64} : memref<16384xi8>
// CHECK:     memref.view %{{.*}} : memref<16384xi8> to memref<64x64xf32>
func.func @shared(%values: memref<64x64xf32>, %out: memref<64x64xf32>, %more: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %bytes = memref.alloca() {alignment = 64} : memref<16384xi8>
  %probs = memref.view %bytes[%c0][] : memref<16384xi8> to memref<64x64xf32>
  %flat = memref.view %bytes[%c0][] : memref<16384xi8> to memref<4096xf32>
  linalg.generic {indexing_maps = [#v, #p, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%values, %probs : memref<64x64xf32>, memref<64x64xf32>) outs(%out : memref<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %z, %0 : f32
    linalg.yield %1 : f32
  }
  return
}
