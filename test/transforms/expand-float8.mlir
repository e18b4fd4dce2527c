// RUN: attn-opt %s --expand-float8="tables=no" | FileCheck %s --check-prefixes=CHECK,SHIFTS
// RUN: attn-opt %s --expand-float8="tables=yes" | FileCheck %s --check-prefixes=CHECK,TABLES

// Adding 2^20 times the power of two below a number rounds it to 3 bits, which are then those of the sum.
// CHECK-LABEL: func.func @truncated
// CHECK:       %[[BITS:.*]] = arith.bitcast %arg0 : vector<16xf32> to vector<16xi32>
// CHECK:       %[[E:.*]] = arith.maxui
// CHECK:       %[[UNIT:.*]] = arith.addi %[[E]]
// CHECK:       %[[SUM:.*]] = arith.addf
// CHECK:       arith.minui
// CHECK:       %[[BYTES:.*]] = arith.trunci {{.*}} : vector<16xi32> to vector<16xi8>
// CHECK:       arith.bitcast %[[BYTES]] : vector<16xi8> to vector<16xf8E4M3FN>
func.func @truncated(%x: vector<16xf32>) -> vector<16xf8E4M3FN> {
  %y = arith.truncf %x : vector<16xf32> to vector<16xf8E4M3FN>
  return %y : vector<16xf8E4M3FN>
}

// CHECK-LABEL: func.func @extended
// SHIFTS:      arith.extui {{.*}} : vector<32xi8> to vector<32xi32>
// SHIFTS:      arith.truncf {{.*}} : vector<32xf32> to vector<32xbf16>
// TABLES:      %[[TWICE:.*]] = vector.shuffle {{.*}} [0, 0, 1, 1,
// TABLES:      llvm.call_intrinsic "llvm.x86.avx512.vpermi2var.qi.512"(%{{.*}}, %[[TWICE]], %{{.*}})
// TABLES:      llvm.call_intrinsic "llvm.x86.avx512.vpermi2var.qi.512"(%{{.*}}, %[[TWICE]], %{{.*}})
// TABLES:      vector.bitcast {{.*}} : vector<64xi8> to vector<32xbf16>
// TABLES-NOT:  arith.truncf
func.func @extended(%x: vector<32xf8E5M2>) -> vector<32xbf16> {
  %y = arith.extf %x : vector<32xf8E5M2> to vector<32xbf16>
  return %y : vector<32xbf16>
}

// As many shuffles as tables take of this many would be made for minutes.
// CHECK-LABEL: func.func @wide
// CHECK:       arith.extui {{.*}} : vector<4294967296xi8> to vector<4294967296xi32>
func.func @wide(%x: vector<4294967296xf8E5M2>) -> vector<4294967296xf32> {
  %y = arith.extf %x : vector<4294967296xf8E5M2> to vector<4294967296xf32>
  return %y : vector<4294967296xf32>
}

// No CPU has a table for one number.
// CHECK-LABEL: func.func @scalar
// CHECK:       arith.extui {{.*}} : i8 to i32
// CHECK:       arith.extf {{.*}} : f32 to f64
func.func @scalar(%x: f8E4M3FNUZ) -> f64 {
  %y = arith.extf %x : f8E4M3FNUZ to f64
  return %y : f64
}

// What is extended again never is 8 bits. A power is not negative, and need not be computed to the last bit.
// CHECK-LABEL: func.func @rounded
// CHECK:       %[[P:.*]] = math.exp2 %arg0 {rounded = f8E4M3FN}
// CHECK:       %[[X:.*]] = arith.mulf %[[P]]
// CHECK:       %[[SUM:.*]] = math.fma %{{.*}}, %{{.*}}, %[[X]]
// CHECK:       %[[R:.*]] = math.fma %{{.*}}, %{{.*}}, %[[SUM]]
// CHECK:       %[[FITS:.*]] = arith.cmpf ole, %[[R]]
// CHECK:       %[[Y:.*]] = arith.select %[[FITS]], %[[R]]
// CHECK-NEXT:  return %[[Y]]
func.func @rounded(%x: vector<16xf32>) -> vector<16xf32> {
  %c = arith.constant dense<256.0> : vector<16xf32>
  %p = math.exp2 %x : vector<16xf32>
  %m = arith.mulf %p, %c : vector<16xf32>
  %t = arith.truncf %m : vector<16xf32> to vector<16xf8E4M3FN>
  %y = arith.extf %t : vector<16xf8E4M3FN> to vector<16xf32>
  return %y : vector<16xf32>
}

// CHECK-LABEL: func.func @arithmetic
// CHECK:       arith.mulf {{.*}} : f32
// CHECK:       arith.trunci
// CHECK-NOT:   arith.mulf {{.*}} : f8E5M2
func.func @arithmetic(%x: f8E5M2) -> f8E5M2 {
  %y = arith.mulf %x, %x : f8E5M2
  return %y : f8E5M2
}
