"""What `pip install` takes along, that the folders import each other one way, that files which are named are there."""

import ast
import functools
import pathlib
import re
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
LAYERS = ["dialects", "transforms", "compiler"]
STAGES = {"cpu": ["tensors", "buffers", "vectors", "code"], "nvidia": ["kernels", "schedule", "code"]}
SOURCES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def test_every_package_is_installed():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for path in SOURCES}
    assert sorted(declared) == sorted(".".join(["attn_opt", *folder.parts]) for folder in folders)
    for folder in folders:
        assert (ROOT / folder / "__init__.py").exists()


def statements(node):
    """All that is in a module, a class or a function but expressions, of which there are far more."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


@functools.cache
def imports(source):
    """The modules that a file imports relatively, as paths, and the lines where it does."""
    package, found = source.relative_to(ROOT).parent.parts, []
    for node in statements(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            base = [*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else [])]
            for name in node.names:
                found.append(([*base, name.name], node.lineno))
    return found


def test_imports_point_down():
    """compiler → transforms → dialects, never the other way."""
    for source in SOURCES:
        allowed = LAYERS[: LAYERS.index(source.relative_to(ROOT).parts[0]) + 1]
        for target, line in imports(source):
            assert target[0] in allowed, f"{source}:{line} imports {'.'.join(target)}"


@pytest.mark.parametrize("target", STAGES)
def test_stages_know_each_other_by_the_ir_alone(target):
    """What a stage of a target needs to know of another one is in the IR, or in a file above both."""
    for stage in STAGES[target]:
        sources = list((ROOT / "transforms" / target / stage).glob("*.py"))
        assert len(sources) > 1
        for source in sources:
            for (*parts, _), line in imports(source):
                other = parts[2] if parts[:2] == ["transforms", target] and len(parts) > 2 else stage
                assert other == stage or other not in STAGES[target], f"{source}:{line} imports {'.'.join(parts)}"


def test_files_that_are_named_are_there():
    """Docstrings, comments and docs that name a file, by itself or with folders it is in."""
    there = [f"/{path.relative_to(ROOT)}" for path in (*SOURCES, *(ROOT / "test").rglob("*.py"), *ROOT.glob("*/*.py"))]
    for source in (*SOURCES, *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")):
        for named in re.findall(r"[\w/]*\w\w\.py\b", source.read_text()):
            assert any(path.endswith(f"/{named}") for path in there), f"{source} names {named}"
