"""A module is compiled in several objects, and what they make together is what one engine makes."""

import os
import threading

import numpy as np
import pytest
from attn_opt.compiler import compile, pass_manager, recording
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime import cpu, elf, object_files
from attn_opt.dialects import make_context
from attn_opt.dialects.mlir import ir
from attn_opt.transforms.rewriting import ops_in

# Three versions, tasks of 1300 ops and more; two of them are of few rows.
GRAPH = Attention(heads=4, heads_kv=2, queries=70, keys=90, dynamic=True)


@pytest.fixture
def anew(monkeypatch):
    monkeypatch.setenv("ATTN_OPT_CACHE", "0")


def starts(image: bytes) -> list[int]:
    """Where the objects of an image start."""
    found, at = [], 0
    while at < len(image):
        found.append(at)
        _, at = elf._sections(image, at)
    return found


def test_several_objects_are_one_kernel(anew, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    inputs = GRAPH.inputs()
    kernel = compile(GRAPH.text(), threads=1)
    image = kernel._runtime.object_file()
    assert len(starts(image)) > 1
    again = cpu.CpuKernel.load(image, kernel.signature)
    monkeypatch.setattr(object_files, "LARGE", 1 << 20)
    whole = compile(GRAPH.text(), threads=1)
    assert len(starts(whole._runtime.object_file())) == 1
    for run in (kernel, again):
        np.testing.assert_array_equal(run(*inputs), whole(*inputs))
    expected, _ = GRAPH.reference(inputs)
    np.testing.assert_allclose(GRAPH.canonical_output(kernel(*inputs)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(3, 1)
@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_parts_find_what_only_code_generation_calls(anew, monkeypatch, capfd, element):
    """On a CPU that rounds neither, functions do: `__truncsfbf2`, which the module has, or one of libgcc's."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    graph = Attention(heads=2, queries=70, keys=90, dynamic=True, element=element)
    kernel = compile(graph.text(), threads=1)
    assert capfd.readouterr().err == ""
    assert len(starts(kernel._runtime.object_file())) > 1  # not made whole
    inputs = graph.inputs()
    expected, _ = graph.reference(inputs)
    np.testing.assert_allclose(graph.canonical_output(kernel(*inputs)), expected, rtol=2e-2, atol=2e-2)


LOOPS = """
func.func @f(%a: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %x = memref.load %a[%i] : memref<?xf32>
    %y = arith.addf %x, %x : f32
    memref.store %y, %a[%i] : memref<?xf32>
  }
  return
}
func.func @g(%a: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %n step %c8 {
    %x = vector.load %a[%i] : memref<?xf32>, vector<8xf32>
    vector.store %x, %a[%i] : memref<?xf32>, vector<8xf32>
  }
  return
}
func.func @h(%x: f32) -> f32 {
  %y = arith.addf %x, %x : f32
  return %y : f32
}
func.func @k(%a: memref<?xf32>, %b: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c8 {
      %x = vector.load %a[%j] : memref<?xf32>, vector<8xf32>
      vector.store %x, %a[%j] : memref<?xf32>, vector<8xf32>
    }
    %x = memref.load %a[%i] : memref<?xf32>
    memref.store %x, %b[%i] : memref<?xf32>
  }
  return
}"""


def test_loops_over_single_numbers_are_left_to_llvm():
    """Not so a number between loops over vectors."""
    with make_context() as context:
        module = ir.Module.parse(LOOPS, context)
        pass_manager.run(["convert-scf-to-cf", "convert-to-llvm"], module)
        functions = ops_in(module.operation, "llvm.func")
        assert [object_files._is_simple(function) for function in functions] == [False, True, True, True]


def test_what_is_around_tasks_and_tasks_of_few_rows_go_without_passes(anew, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    parts = []
    make = object_files._parts
    monkeypatch.setattr(object_files, "_parts", lambda *of: parts.extend(make(*of)) or parts)
    compile(GRAPH.text(), threads=1)
    assert [part.is_simple for part in parts] == [False, True]
    assert parts[1].size > 2 * object_files.LARGE  # what is around tasks, and both of few rows
    parts.clear()
    monkeypatch.setattr(object_files, "WITH_PASSES", 0)  # the others take no time
    compile(GRAPH.text(), threads=1)
    assert [part.is_simple for part in parts] == [False, True, True, True]


def test_a_small_task_of_few_rows_goes_without_passes(anew, monkeypatch):
    parts = []
    make = object_files._parts
    monkeypatch.setattr(object_files, "_parts", lambda *of: parts.extend(make(*of)) or parts)
    graph = Attention(heads=4, heads_kv=2, queries=1, keys=64)
    inputs = graph.inputs()
    kernel = compile(graph.text(), threads=1)
    assert [part.is_simple for part in parts] == [True]
    assert kernel._runtime.object_file() == parts[0].image
    expected, _ = graph.reference(inputs)
    np.testing.assert_allclose(graph.canonical_output(kernel(*inputs)), expected, rtol=1e-4, atol=1e-5)


def test_stages_are_printed_while_others_compile(anew, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    printed, seen = threading.Event(), []
    make, text_of = object_files._Part.compile, recording.print_module

    def compile_part(part, *how):
        make(part, *how)
        if threading.current_thread() != threading.main_thread():
            seen.append(printed.wait(60))

    def print_module(*of, **how):
        printed.set()
        return text_of(*of, **how)

    monkeypatch.setattr(object_files._Part, "compile", compile_part)
    monkeypatch.setattr(recording, "print_module", print_module)
    kernel = compile(GRAPH.text(), threads=1)
    assert seen == [True]
    assert "llvm.func" in kernel.ir("llvm")


@pytest.mark.slow
def test_objects_do_not_depend_on_the_number_of_threads(anew, monkeypatch):
    images = []
    for processors in (1, 2, 3, 16):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=processors: set(range(n)))
        images.append(compile(GRAPH.text(), threads=1)._runtime.object_file())
    assert len(set(images)) == 1


def test_what_cannot_be_made_in_parts_is_made_whole(anew, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(object_files._Part, "compile", lambda *_: None)
    inputs = GRAPH.inputs()
    expected, _ = GRAPH.reference(inputs)
    kernel = compile(GRAPH.text(), threads=1)
    np.testing.assert_allclose(GRAPH.canonical_output(kernel(*inputs)), expected, rtol=1e-4, atol=1e-5)


def test_an_object_that_lacks_another_one_is_refused(anew, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    image = compile(GRAPH.text(), threads=1)._runtime.object_file()
    with pytest.raises(elf.LoadError, match="attention_parallel_0 is nowhere"):
        elf.load(image[starts(image)[1] :], cpu.symbol_sources())


def layers(count: int) -> str:
    """Matmuls in a row, as the layers of a model, each of its own matrix."""
    matrix, tile = "tensor<64x64xf32>", "tensor<256x64xf32>"
    weights = "".join(f", %w{i}: {matrix}" for i in range(count))
    text = [
        f"func.func @layers(%x0: {tile}{weights}) -> {tile} {{",
        "  %zero = arith.constant 0.0 : f32",
        f"  %empty = tensor.empty() : {tile}",
        f"  %init = linalg.fill ins(%zero : f32) outs(%empty : {tile}) -> {tile}",
    ]
    for i in range(count):
        of = f"ins(%x{i}, %w{i} : {tile}, {matrix}) outs(%init : {tile}) -> {tile}"
        text.append(f"  %x{i + 1} = linalg.matmul {of}")
    return "\n".join([*text, f"  return %x{count} : {tile}", "}"])


def test_small_tasks_get_passes_and_what_is_around_many_of_them_none(anew, monkeypatch):
    """LLVM's passes took a minute for what is around the tasks of some 50 layers."""
    parts = []
    make = object_files._parts
    monkeypatch.setattr(object_files, "_parts", lambda *of: parts.extend(make(*of)) or parts)
    count = 80
    kernel = compile(layers(count), threads=1)
    assert [part.is_simple for part in parts] == [False, True]
    assert parts[0].size < object_files.LARGE < parts[1].size
    rng = np.random.default_rng(3)
    x, *weights = inputs = [rng.standard_normal((256, 64)), *(rng.standard_normal((count, 64, 64)) / 8)]
    for w in weights:
        x = x @ w
    found = kernel(*(a.astype(np.float32) for a in inputs))
    np.testing.assert_allclose(found, x, rtol=1e-3, atol=1e-4)
    tasks = [op for op in ops_in(parts[0].module.operation, "llvm.func") if len(op.regions[0].blocks)]
    assert len(tasks) == 1  # that of all layers
