"""Arguments whose memory results are made in: compile(..., donate=…)."""

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile, load

APPEND = """
func.func @append(%cache: tensor<8x4xf32>, %row: tensor<1x4xf32>, %at: index) -> (tensor<8x4xf32>, tensor<4xf32>) {
  %0 = tensor.insert_slice %row into %cache[%at, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
  %c = arith.constant dense<0.0> : tensor<4xf32>
  %1 = linalg.reduce { arith.addf } ins(%0 : tensor<8x4xf32>) outs(%c : tensor<4xf32>) dimensions = [0]
  return %0, %1 : tensor<8x4xf32>, tensor<4xf32>
}"""


def arrays():
    return np.arange(32, dtype=np.float32).reshape(8, 4), np.full((1, 4), -1, np.float32)


def check(found, cache, row, at):
    expected = cache.copy()
    expected[at] = row
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], expected.sum(0))


def test_a_result_in_the_memory_of_an_argument():
    cache, row = arrays()
    given = cache.copy()
    found = compile(APPEND, donate=[0])(given, row, 3)
    check(found, cache, row, 3)
    assert np.shares_memory(found[0], given) and given[3, 0] == -1
    assert not np.shares_memory(found[1], given)


def test_without_it_arguments_are_left_alone():
    cache, row = arrays()
    given = cache.copy()
    check(compile(APPEND)(given, row, 3), cache, row, 3)
    np.testing.assert_array_equal(given, cache)


def test_the_graph_may_say_it():
    cache, row = arrays()
    marked = APPEND.replace("%cache: tensor<8x4xf32>", "%cache: tensor<8x4xf32> {bufferization.writable = true}")
    assert np.shares_memory(compile(marked)(cache, row, 3)[0], cache)


def test_what_is_donated_in_vain_is_told_of():
    cache, row = arrays()
    with pytest.warns(UserWarning, match="no result is made in the memory of donated argument 1: it is copied"):
        kernel = compile(APPEND, donate=[1])
    check(kernel(cache, row, 3), cache, row, 3)


def test_a_saved_kernel_knows_of_it(tmp_path):
    cache, row = arrays()
    compile(APPEND, donate=[0]).save(tmp_path / "a.kernel")
    assert np.shares_memory(load(tmp_path / "a.kernel")(cache, row, 3)[0], cache)


@pytest.mark.parametrize("kind", ["read-only", "strided", "shared"])
def test_what_cannot_be_written_to_is_copied(kind):
    cache, row = arrays()
    given = cache.copy()
    if kind == "read-only":
        given.flags.writeable = False
    if kind == "strided":
        given = np.stack([given, given], axis=1)[:, 0]
    if kind == "shared":
        row = given[2:3]
    before = given.copy()
    found = compile(APPEND, donate=[0])(given, row, 3)
    check(found, before, before[2:3] if kind == "shared" else row, 3)
    np.testing.assert_array_equal(given, before)


def test_what_is_read_after_the_write_is_copied_first():
    """The kernel reads the cache as it was, too."""
    both = APPEND.replace("ins(%0 :", "ins(%cache :")
    cache, row = arrays()
    with pytest.warns(UserWarning, match="no result is made in the memory of donated argument 0"):
        found = compile(both, donate=(0,))(cache.copy(), row, 3)
    np.testing.assert_array_equal(found[1], cache.sum(0))
    np.testing.assert_array_equal(found[0][3], row[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"donate": [3]}, "donate: there is no argument 3 of 3"),
        ({"donate": [-1]}, "donate: there is no argument -1"),
        ({"donate": [2]}, "donate: argument 2 is no tensor, but of type index"),
        ({"donate": ["cache"]}, "donate: there is no argument 'cache': a number says which"),
        ({"donate": 0}, "donate must be a sequence of numbers or names of arguments, but is 0"),
        ({"donate": "cache"}, "donate must be a sequence of numbers or names of arguments, but is 'cache'"),
    ],
)
def test_errors_that_teach(options, message):
    with pytest.raises(CompileError, match=message):
        compile(APPEND, **options)
