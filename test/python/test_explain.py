"""What is explained: as text by kernels, also by those that were there already; as a page by the tools."""

import json
import pathlib
import re
import xml.etree.ElementTree

import pytest
from attn_opt.compiler import cache, compile
from attn_opt.compiler.tools import attn_opt, attn_run, tile_picture
from attn_opt.transforms.formulas import evaluated, loops_in

ROOT = pathlib.Path(__file__).parents[2]
CAUSAL = ROOT / "examples" / "causal_attention.mlir"
SCRIPTED = ROOT / "examples" / "multihead_attention.mlir"
ADD = """
func.func @add(%a: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %0 = linalg.add ins(%a, %a : tensor<2x5xf32>, tensor<2x5xf32>) outs(%a : tensor<2x5xf32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}
"""


def test_text_says_where_attention_is_with_which_loops_and_tiles():
    text = compile(CAUSAL, tile_sizes=(32, 0, 16)).explain()
    assert "causal_attention for cpu: 1 attention found and fused" in text
    assert re.search(r"attention at .*causal_attention\.mlir:46\n", text)
    assert re.search(r"1\. queries +all by 32 +in parallel\n +2\. keys +all by 16\n", text)
    assert "fused with linalg_ext.softmax, linalg.generic, linalg.matmul" in text
    assert "split-masked-tiles: skips dead tiles" in text
    assert "machine code" in text


def test_keys_outside_leave_the_queries_parallel():
    text = compile(CAUSAL, tile_sizes=(32, 0, 16), tile_interchange=(2, 0, 1)).explain()
    assert re.search(r"1\. keys +all by 16\n +2\. queries +all by 32 +in parallel\n", text)


def test_scripts_are_explained_too():
    text = compile(SCRIPTED).explain()
    assert "1 attention found and fused" in text
    assert re.search(
        r"2\. batch +6 by 2  in parallel\n +3\. queries +129 by 32  in parallel\n +4\. keys +75 by 16", text
    )


def test_kernels_that_were_there_already_say_the_same_with_their_own_file(tmp_path):
    text = CAUSAL.read_text()
    (tmp_path / "a.mlir").write_text(text)
    (tmp_path / "b.mlir").write_text(text)
    first = compile(tmp_path / "a.mlir")
    cache.forget()
    for name in ("a.mlir", "b.mlir"):
        found = compile(tmp_path / name)
        assert found.explain() == first.explain().replace("a.mlir", name)
    softmax = next(e["details"] for e in found.record["entries"] if e["details"].get("kind") == "fused")["softmax"]
    assert softmax[0] == str(tmp_path / "b.mlir")


def test_nothing_fused_says_so_with_the_warning():
    text = compile(ADD).explain()
    assert text.startswith("add for cpu: nothing was fused")
    assert "warnings" in text and "no attention was found" in text


def test_what_is_left_is_told_with_the_reason():
    near_misses = (ROOT / "test" / "transforms" / "raise-attention" / "near-misses.mlir").read_text()
    with pytest.warns(match=r"attention is not fused at <string>:\d+: softmax was expected, but ") as told:
        text = compile(near_misses.split("// -----")[0]).explain()
    assert told[0].filename == __file__  # where the call is
    assert re.search(r"^left\n  <string>:\d+: softmax was expected, but ", text, re.MULTILINE)


def levels_of(page):
    return dict(json.loads(re.search(r'<script type="application/json" id="levels">(.*?)</script>', page, re.S)[1]))


def test_a_page_for_a_run(tmp_path, capfd):
    path = tmp_path / "out.html"
    assert attn_run.main([str(CAUSAL), "--dim", "100", "--tile-sizes", "16,0,16", "--report", str(path)]) == 0
    page = path.read_text()
    assert "agrees with float64" in page and ">PASS<" in page
    assert "queries: 100 by 16, in parallel" in page
    assert "7 × 7 tiles of 16 × 16: 21 dead and skipped" in page
    assert list(levels_of(page)) == compile(CAUSAL, tile_sizes=(16, 0, 16)).stages()
    assert not re.search(r"(src|href)=|https?:|@import|url\((?!#)", page.split('id="levels"')[0])
    capfd.readouterr()


def test_a_page_for_passes_is_escaped_and_shows_errors(tmp_path, capfd):
    source, path = tmp_path / "a<b.mlir", tmp_path / "out.html"
    source.write_text(ADD + 'func.func @g() attributes {evil = "</script><b>"} { return }\n')
    assert attn_opt.main([str(source), "--canonicalize", "--cse", "--report", str(path)]) == 0
    page = path.read_text()
    assert list(levels_of(page)) == ["input", "canonicalize", "cse"]
    assert "</script><b>" not in page and "a<b" not in page and "a&lt;b.mlir" in page
    source.write_text("func.func @f( {")
    assert attn_opt.main([str(source), "--cse", f"--report={path}"]) == 1
    assert "1 error<" in path.read_text()
    assert attn_opt.main([str(source), "--report"]) == 1
    source.write_text(ADD)
    assert attn_opt.main([str(source), "--report", str(tmp_path / "no" / "out.html")]) == 1
    assert "out.html: error: cannot be written" in capfd.readouterr().err


def test_the_picture_alone(tmp_path, capfd):
    source, path = tmp_path / "a.mlir", tmp_path / "tiles.svg"
    text = CAUSAL.read_text()
    source.write_text(text + "// -----\n" + text.replace("@causal_attention", "@again"))
    arguments = ["--split-input-file", "--fuse-attention=tile-sizes=16,0,16", f"--report={path}"]
    assert attn_opt.main([str(source), *arguments]) == 0
    picture = xml.etree.ElementTree.parse(path).getroot()
    shown = ["".join(one.itertext()) for one in picture.iter() if one.tag.endswith("}text")]
    assert shown.count("computed") == 2 and shown.count("loop 1") == 2  # two attentions, each with its legend
    source.write_text(ADD)
    assert attn_opt.main([str(source), *arguments]) == 1
    assert f"no attention was fused, so there are no tiles to draw in '{path}'" in capfd.readouterr().err


def fused(queries, keys, parts=(), parallel=1):
    loops = [
        {"axis": name, "tile": tile, "extent": extent}
        for name, (extent, tile) in (("queries", queries), ("keys", keys))
    ]
    also = [{"details": {"kind": "parallel", "loops": parallel, "around": 0}}] if parallel else []
    if parts:
        also.append({"details": {"kind": "split", "step": keys[1], "loops_inside": 0, "parts": list(parts)}})
    return {"details": {"attention": True, "loops": loops}, "also": also}


@pytest.mark.parametrize("queries, keys", [((1, 1), (4096, 512)), ((7, 4), (9, 8)), ((100_000, 2), (100_000, 2))])
def test_pictures_of_any_size_are_bounded(queries, keys):
    plane = tile_picture.plane_of(fused(queries, keys))
    assert (plane.queries.tiles, plane.keys.tiles) == (-(-queries[0] // queries[1]), -(-keys[0] // keys[1]))
    assert len(tile_picture.picture(plane)) < 200_000


def test_tiles_are_dead_where_no_part_of_the_loop_goes():
    """Causal, tiles of 4 × 4: keys up to the last query of the tile; the last tile with the mask."""
    query = ["loop", 4]
    parts = [
        {"from": 0, "to": query, "masked": False},
        {"from": query, "to": ["min", ["add", query, 4], ["dim", 1, 0]], "masked": True},
    ]
    plane = tile_picture.plane_of(fused((10, 4), (["dim", 1, 0], 4), parts), [(10, 8), (10, 8)])
    live, masked, dead = tile_picture.LIVE, tile_picture.MASKED, tile_picture.DEAD
    assert plane.kinds == [[masked, dead, dead], [live, masked, dead], [live, live, masked]]
    unknown = [{"from": 0, "to": ["unknown"], "masked": False}]
    assert tile_picture.plane_of(fused((10, 4), (10, 4), unknown)).count(tile_picture.PLAIN) == 9


def test_formulas():
    found = ["select", ["lt", ["dim", 0, 1], 5], ["max", 1, 2], ["ceildiv", ["add", ["loop", 64], 7], 4]]
    assert evaluated(found, lambda leaf: 9) == 4
    assert evaluated(found, lambda leaf: 9 if leaf[0] == "dim" else None) is None
    assert evaluated(["mod", 5, 0], lambda leaf: None) is None
    assert loops_in(found) == [64]
