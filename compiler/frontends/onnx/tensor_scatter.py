"""TensorScatter, which writes new keys or values into a cache, as a choice per element: attention is traced through it.

  Y = TensorScatter<axis = 2>(past, new, first)
becomes
  place = Range(0, size of past) − first;  Y = Where(0 ≤ place < size of new, new moved there, past)
"""

from .text import Attributes, Has, arange, ints


def tensor_scatter(a: Attributes, has: Has) -> str | None:
    past, new = a["shapes"][:2]
    if past is None or new is None:
        return None
    rank = len(past)
    axis = a.get("axis", -2) % rank
    along = f"<start = {axis}, end = {axis + 1}>"
    text = f"size = Shape{along}(x0)\nlength = Shape{along}(x1)\n"
    text += arange("key", "size") + ints("along", -1, *[1] * (rank - axis - 1)) + "keys = Reshape(key, along)\n"
    text += ints("zero", 0) + ints("one", 1)
    if has(2):
        text += ints("batches", -1, *[1] * (rank - 1)) + "first = Reshape(x2, batches)\nplace0 = Sub(keys, first)\n"
    else:
        text += "place0 = Identity(keys)\n"
    circular = a.get("mode", b"linear") == b"circular"
    text += "place = Mod(place0, size)\n" if circular else "place = Identity(place0)\n"
    text += "is_late = GreaterOrEqual(place, zero)\nis_early = Less(place, length)\nis_new = And(is_late, is_early)\n"
    if new[axis] == 1:
        return text + "y0 = Where(is_new, x1, x0)\n"
    text += "last = Sub(length, one)\nlow = Max(place, zero)\nnear = Min(low, last)\nform = Shape(x0)\n"
    text += f"places = Expand(near, form)\nmoved = GatherElements<axis = {axis}>(x1, places)\n"
    return text + "y0 = Where(is_new, moved, x0)\n"
