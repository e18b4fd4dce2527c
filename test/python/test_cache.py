"""Kernels that are there already: found by what they depend on, safe whatever happens to the folder."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from attn_opt.compiler import CompileError, cache, cache_files, cache_key, compile, kernel_file, load, stats
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module

ATTENTION = """
func.func @attention(%q: tensor<?x16xf32>, %k: tensor<24x16xf32>, %v: tensor<24x16xf32>) -> tensor<?x16xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %m = tensor.dim %q, %c0 : tensor<?x16xf32>
  %se = tensor.empty(%m) : tensor<?x24xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<?x24xf32>) -> tensor<?x24xf32>
  %s = linalg.matmul
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%q, %k : tensor<?x16xf32>, tensor<24x16xf32>) outs(%s0 : tensor<?x24xf32>) -> tensor<?x24xf32>
  %r = tensor.empty(%m) : tensor<?xf32>
  %m0 = linalg.fill ins(%inf : f32) outs(%r : tensor<?xf32>) -> tensor<?xf32>
  %a0 = linalg.fill ins(%zero : f32) outs(%r : tensor<?xf32>) -> tensor<?xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<?x24xf32>)
    outs(%se, %m0, %a0, %r : tensor<?x24xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
    : tensor<?x24xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %oe = tensor.empty(%m) : tensor<?x16xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<?x16xf32>) -> tensor<?x16xf32>
  %o = linalg.matmul ins(%p#0, %v : tensor<?x24xf32>, tensor<24x16xf32>)
    outs(%o0 : tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}
"""
ADD = """
func.func @add(%a: tensor<?x5xf32>) -> tensor<?x5xf32> {
  %0 = linalg.add ins(%a, %a : tensor<?x5xf32>, tensor<?x5xf32>) outs(%a : tensor<?x5xf32>) -> tensor<?x5xf32>
  return %0 : tensor<?x5xf32>
}
"""
PROCESS = """
import json, sys, time
import numpy as np
from attn_opt.compiler import compile, stats
import attn_opt.compiler.api
text = sys.stdin.read()
start = time.process_time()  # other processes may keep this one waiting
kernel = compile(text)
seconds = time.process_time() - start
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal(s, dtype=np.float32) for s in ((7, 16), (24, 16), (24, 16)))
print(json.dumps([stats()["cache_hits"], seconds, kernel(q, k, v).tolist(), kernel.stages(), len(kernel.ir("llvm"))]))
"""


def start(text):
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdin.write(text)
    process.stdin.close()
    return process


def answer(process):
    out, error = process.stdout.read(), process.stderr.read()
    assert process.wait() == 0, error
    return json.loads(out)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTN_OPT_CACHE_DIR", str(tmp_path / "cache"))
    cache.forget()
    yield tmp_path / "cache"
    cache.forget()


def hits(work):
    before = stats()["cache_hits"]
    work()
    return stats()["cache_hits"] - before


def entries(folder):
    return sorted(folder.glob("*.kernel"))


def test_a_second_process_finds_the_kernel(folder):
    first, second = answer(start(ATTENTION)), answer(start(ATTENTION))
    assert (first[0], second[0]) == (0, 1)
    assert second[2:] == first[2:]
    assert second[1] < first[1]  # seconds: reading is faster than compiling


@pytest.mark.slow
def test_processes_at_once_agree_and_leave_whole_entries(folder):
    answers = [answer(process) for process in [start(ATTENTION) for _ in range(3)]]
    assert all(a[2:] == answers[0][2:] for a in answers)
    assert len(entries(folder)) == 1 and not list(folder.glob("new-*"))
    assert answer(start(ATTENTION))[0] == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
        lambda data: b"something else".ljust(len(data)),
    ],
)
def test_damaged_entries_are_replaced(folder, damage):
    compile(ADD)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    cache.forget()
    x = np.ones((2, 5), np.float32)
    assert hits(lambda: np.testing.assert_array_equal(compile(ADD)(x), x + x)) == 0
    assert kernel_file.unpacked(entry.read_bytes()).texts == kernel_file.unpacked(whole).texts
    cache.forget()
    assert hits(lambda: np.testing.assert_array_equal(compile(ADD)(x), x + x)) == 1


@pytest.mark.parametrize("damage", [b"", b"../../etc/passwd", b"\xff" * 64, b"0" * 64])
def test_damaged_sources_are_replaced(folder, damage):
    compile(ADD)
    (source,) = folder.glob("*.source")
    source.write_bytes(damage)
    cache.forget()
    compile(ADD)
    assert hits(lambda: (cache.forget(), compile(ADD))) == 1


def test_whatever_changes_the_code_changes_the_entry(folder):
    compile(ATTENTION)
    assert hits(lambda: compile(ATTENTION)) == 1
    assert hits(lambda: compile(ATTENTION, threads=len(os.sched_getaffinity(0)))) == 1
    for text, options in (
        (ATTENTION, {"fuse": False}),
        (ATTENTION, {"threads": 1000}),
        (ATTENTION, {"split_keys": 3}),
        (ATTENTION, {"tile_sizes": [8, 0, 8]}),
        (ATTENTION, {"tile_sizes": [8, 0, 4], "tile_interchange": [0, 1, 2]}),
        (ATTENTION.replace("24", "25"), {}),
        (ATTENTION.replace("f32", "f64").replace("0xFF800000", "0xFFF0000000000000"), {}),
    ):
        assert hits(lambda text=text, options=options: compile(text, **options)) == 0
        assert hits(lambda text=text, options=options: (cache.forget(), compile(text, **options))) == 1


def test_the_host_and_the_sources_are_part_of_the_key(folder, monkeypatch):
    compile(ADD)
    monkeypatch.setattr(cache_key, "environment", lambda target: ("another machine",))
    assert hits(lambda: compile(ADD)) == 0


def test_names_and_comments_do_not_matter(folder):
    compile(ADD)
    assert hits(lambda: compile("// a comment\n" + ADD.replace("%0", "%sum"))) == 1
    assert hits(lambda: compile(parse_module(ADD, "elsewhere.mlir", make_context()))) == 1


def test_ir_of_a_kernel_that_was_found(folder):
    texts = (kernel := compile(ATTENTION)).stages(), [kernel.ir(stage) for stage in kernel.stages()]
    cache.forget()
    again = compile(ATTENTION)
    assert (again.stages(), [again.ir(stage) for stage in again.stages()]) == texts
    with pytest.raises(CompileError, match="no stage 'nope'; the stages are: graph"):
        again.ir("nope")


def test_checks_of_a_kernel_that_was_found(folder):
    compile(ATTENTION)
    cache.forget()
    kernel = compile(ATTENTION)
    x = np.zeros((24, 16), np.float32)
    with pytest.raises(CompileError, match="argument 1 must be tensor<24x16xf32>"):
        kernel(x, x[1:], x)


def test_failures_are_not_kept(folder):
    text = "func.func @f(%a: memref<4xf32>) { return }"
    for _ in range(2):
        with pytest.raises(CompileError, match="memref"):
            compile(text)
    assert not entries(folder)


def test_what_there_was_to_say_is_said_again(folder, tmp_path):
    """At its place in the file, which may have another name or be another text by then."""

    def remarks(text, name):
        (tmp_path / name).write_text(text)
        heard = []
        compile(tmp_path / name, listener=heard.append)
        return [str(one).replace(str(tmp_path), "") for one in heard]

    first = remarks(ATTENTION, "a.mlir")
    assert len(first) > 0 and all(one.startswith("/a.mlir:") for one in first)
    cache.forget()
    assert hits(lambda: compile(ATTENTION)) == 1
    assert remarks(ATTENTION, "b.mlir") == [one.replace("a.mlir", "b.mlir") for one in first]
    moved = remarks("\n" + ATTENTION, "a.mlir")
    assert len(moved) == len(first) and moved != first


def test_a_kernel_explains_itself_with_the_places_of_its_own_source(folder, tmp_path):
    """Also where another text, or another module, has given the same IR before."""

    def place(source):
        entry = next(e for e in compile(source).record["entries"] if e["details"].get("kind") == "fused")
        return entry["place"][:2], entry["details"]["softmax"][:2]

    def written(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    (file, line), (same, softmax) = place(written("a.mlir", ATTENTION))
    assert file == same == str(tmp_path / "a.mlir") and 0 < softmax < line
    moved = written("b.mlir", "// a line\n// another\n" + ATTENTION)
    for _ in range(2):  # the second time by the text
        expected = ([str(moved), line + 2], [str(moved), softmax + 2])
        assert place(moved) == expected
        cache.forget()
        assert place(moved) == expected
    with make_context():
        assert place(parse_module("\n" + ATTENTION, "c.mlir")) == (["c.mlir", line + 1], ["c.mlir", softmax + 1])


def test_a_kernel_made_anew_of_another_source_tells_of_that(folder, tmp_path):
    """Of a source in which ops share places there are fewer of them."""
    (tmp_path / "a.mlir").write_text(ATTENTION)
    first = compile(tmp_path / "a.mlir")
    (kernel,) = folder.glob("*.kernel")
    found = kernel_file.unpacked(kernel.read_bytes())
    found.record["anchors"] = found.record["anchors"][:1]
    kernel.write_bytes(kernel_file.packed(found))
    cache.forget()
    assert compile(tmp_path / "a.mlir").explain().splitlines()[0] == first.explain().splitlines()[0]


def test_it_can_be_turned_off(folder, monkeypatch):
    monkeypatch.setenv("ATTN_OPT_CACHE", "0")
    assert hits(lambda: (compile(ADD), compile(ADD))) == 0
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ATTN_OPT_CACHE_DIR", str(tmp_path / "file"))
    cache.forget()
    x = np.ones((2, 5), np.float32)
    with pytest.warns(UserWarning, match="kernels are not cached in"):
        np.testing.assert_array_equal(compile(ADD)(x), x + x)


def test_code_is_written_to_no_other_folder(folder, monkeypatch):
    """LLVM, which writes it, ends the process where a disk is full."""
    monkeypatch.setattr(tempfile, "TemporaryDirectory", None)
    compile(ADD.replace("@add", "@add_without_a_folder"))
    assert any(entry.suffix == ".kernel" for entry in folder.iterdir())


def test_the_folder_is_bounded_and_keeps_what_is_used(folder, monkeypatch):
    monkeypatch.setenv("ATTN_OPT_CACHE_LIMIT", "1")
    compile(ADD)
    for i in range(5):  # files that were used before
        cache_files.write(f"{i}.kernel", bytes(300 << 10))
    total = sum(path.stat().st_size for path in folder.iterdir())
    assert total <= 1 << 20
    assert (folder / "4.kernel").exists() and not (folder / "0.kernel").exists()


@pytest.mark.parametrize("text", ["-3", "abc"])
def test_a_bad_limit_is_an_error(text, folder, monkeypatch):
    monkeypatch.setenv("ATTN_OPT_CACHE_LIMIT", text)
    with pytest.raises(CompileError, match=f"ATTN_OPT_CACHE_LIMIT={text}: expects a positive integer"):
        compile(ADD)


def test_a_flag_that_is_none_is_an_error(folder, monkeypatch):
    monkeypatch.setenv("ATTN_OPT_CACHE", "maybe")
    with pytest.raises(CompileError, match="ATTN_OPT_CACHE=maybe: expects 0 or 1"):
        compile(ADD)


def test_in_one_process_it_is_compiled_once_by_many_threads(folder):
    import threading

    kernels = []
    threads = [threading.Thread(target=lambda: kernels.append(compile(ADD))) for _ in range(4)]
    assert hits(lambda: [*map(threading.Thread.start, threads), *map(threading.Thread.join, threads)]) == 3
    x = np.ones((2, 5), np.float32)
    for kernel in kernels:
        np.testing.assert_array_equal(kernel(x), x + x)


def test_a_process_that_is_forked_while_another_thread_compiles():
    """It has no thread that would go on with that, and compiles and calls kernels itself."""
    code = f"""
import os, sys, threading
import numpy as np
from attn_opt.compiler import compile
x, started = np.ones((2, 5), np.float32), threading.Event()
def say(_):
    started.set()
kernel = compile({ADD!r}, threads=2)
thread = threading.Thread(target=lambda: compile({ATTENTION!r}, threads=2, listener=say))
thread.start()
started.wait()
child = os.fork()
if not child:
    assert (compile({ADD.replace("linalg.add", "linalg.mul")!r})(x) == 1).all() and (kernel(x) == 2).all()
    os._exit(0)
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    environment = {**os.environ, "ATTN_OPT_CACHE": "0"}
    done = subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
    try:
        assert done.wait(60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):  # with the child
            os.killpg(done.pid, signal.SIGKILL)


def test_a_kernel_in_a_file_needs_no_bindings(folder, tmp_path):
    """Neither for the CPU, nor to be ready for a GPU: where they are not installed, saved kernels run."""
    file, on_gpu = tmp_path / "add.kernel", tmp_path / "attention.kernel"
    compile(ADD).save(file)
    compile(ATTENTION.replace("?", "64").replace("tensor.empty(%m)", "tensor.empty()"), target="nvidia").save(on_gpu)
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch_mlir":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import numpy as np
from attn_opt.compiler import load
x = np.ones((2, 5), np.float32)
assert (load({str(file)!r})(x) == 2).all()
assert ".entry" in load({str(on_gpu)!r}).ir("ptx")
assert "torch_mlir" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_no_kernel_is_an_error(tmp_path, monkeypatch, folder):
    with pytest.raises(CompileError, match="holds no kernel that can be loaded: no such file"):
        load(tmp_path / "absent")
    with pytest.raises(CompileError, match="/dev/zero holds no kernel that can be loaded: damaged"):
        load("/dev/zero")
    with pytest.raises(CompileError, match="2 holds no kernel that can be loaded: expected str, bytes or"):
        load(2)  # no file descriptor, which would be closed
    file = tmp_path / "add.kernel"
    compile(ADD).save(file)
    (tmp_path / "damaged").write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CompileError, match="holds no kernel that can be loaded: damaged"):
        load(tmp_path / "damaged")
    monkeypatch.setattr(kernel_file, "instructions", lambda target: "another machine's")
    with pytest.raises(CompileError, match="compiled for another CPU"):
        load(file)
    with pytest.raises(CompileError, match="cannot be written: no such file"):
        compile(ADD).save(tmp_path / "nowhere" / "add.kernel")
    for path in (b"add.kernel", "add\0.kernel"):
        with pytest.raises(CompileError, match=r"is no path that can be written: .*(bytes|null)"):
            compile(ADD).save(path)


def test_a_kernel_that_is_kept_is_found_without_the_bindings(folder):
    compile(ADD)
    code = f"""
import sys
from attn_opt.compiler import compile
import numpy as np
assert (compile({ADD!r})(np.ones((2, 5), np.float32)) == 2).all()
assert "torch_mlir" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
