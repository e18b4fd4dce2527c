// RUN: attn-opt %s --share-functions | FileCheck %s

// Two tasks that do the same become one; what calls one of them, and is then the same as another one, too. Another
// number, another size, and what others may call stay.

// CHECK-LABEL: func.func private @task_0(
// CHECK-NOT:   @task_1(
// CHECK:       func.func private @number_0(
// CHECK:         arith.constant 2.0
// CHECK:       func.func private @size_0(%{{.*}}: memref<9xf32>
// CHECK:       func.func private @outer_0(
// CHECK:         call @task_0
// CHECK-NOT:   @outer_1(
// CHECK:       func.func private @declared(
// CHECK:       func.func @public(
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    call @task_0(%arg0, %arg1)
// CHECK-NEXT:    call @task_0(%arg1, %arg1)
// CHECK-NEXT:    call @number_0(%arg0, %arg1)
// CHECK-NEXT:    call @size_0(%arg2, %arg1)
// CHECK-NEXT:    call @outer_0(%arg0, %arg1)
// CHECK-NEXT:    call @outer_0(%arg1, %arg0)
// CHECK-NEXT:    call @declared(%arg0)
// CHECK-NEXT:    call @public(%arg0, %arg1)
func.func private @task_0(%a: memref<8xf32>, %b: memref<8xf32>) attributes {llvm.linkage = #llvm.linkage<internal>, llvm.no_inline} {
  %x = arith.constant 1.0 : f32
  %c0 = arith.constant 0 : index
  memref.store %x, %a[%c0] : memref<8xf32>
  return
}
func.func private @task_1(%p: memref<8xf32>, %q: memref<8xf32>) attributes {llvm.linkage = #llvm.linkage<internal>, llvm.no_inline} {
  %one = arith.constant 1.0 : f32
  %zero = arith.constant 0 : index
  memref.store %one, %p[%zero] : memref<8xf32>
  return
}
func.func private @number_0(%a: memref<8xf32>, %b: memref<8xf32>) attributes {llvm.linkage = #llvm.linkage<internal>, llvm.no_inline} {
  %x = arith.constant 2.0 : f32
  %c0 = arith.constant 0 : index
  memref.store %x, %a[%c0] : memref<8xf32>
  return
}
func.func private @size_0(%a: memref<9xf32>, %b: memref<8xf32>) attributes {llvm.linkage = #llvm.linkage<internal>, llvm.no_inline} {
  %x = arith.constant 1.0 : f32
  %c0 = arith.constant 0 : index
  memref.store %x, %a[%c0] : memref<9xf32>
  return
}
func.func private @outer_0(%a: memref<8xf32>, %b: memref<8xf32>) attributes {llvm.linkage = #llvm.linkage<internal>, llvm.no_inline} {
  func.call @task_0(%a, %b) : (memref<8xf32>, memref<8xf32>) -> ()
  return
}
func.func private @outer_1(%a: memref<8xf32>, %b: memref<8xf32>) attributes {llvm.linkage = #llvm.linkage<internal>, llvm.no_inline} {
  func.call @task_1(%a, %b) : (memref<8xf32>, memref<8xf32>) -> ()
  return
}
func.func private @declared(%a: memref<8xf32>) attributes {llvm.no_inline}
func.func @public(%a: memref<8xf32>, %b: memref<8xf32>) {
  %x = arith.constant 1.0 : f32
  %c0 = arith.constant 0 : index
  memref.store %x, %a[%c0] : memref<8xf32>
  return
}
func.func @main(%a: memref<8xf32>, %b: memref<8xf32>, %c: memref<9xf32>) {
  func.call @task_0(%a, %b) : (memref<8xf32>, memref<8xf32>) -> ()
  func.call @task_1(%b, %b) : (memref<8xf32>, memref<8xf32>) -> ()
  func.call @number_0(%a, %b) : (memref<8xf32>, memref<8xf32>) -> ()
  func.call @size_0(%c, %b) : (memref<9xf32>, memref<8xf32>) -> ()
  func.call @outer_0(%a, %b) : (memref<8xf32>, memref<8xf32>) -> ()
  func.call @outer_1(%b, %a) : (memref<8xf32>, memref<8xf32>) -> ()
  func.call @declared(%a) : (memref<8xf32>) -> ()
  func.call @public(%a, %b) : (memref<8xf32>, memref<8xf32>) -> ()
  return
}
