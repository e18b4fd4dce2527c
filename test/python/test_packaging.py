"""What `pip install` takes along, and that the folders import each other one way."""

import ast
import pathlib
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
LAYERS = ["dialects", "transforms", "compiler"]
SOURCES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def test_every_package_is_installed():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for path in SOURCES}
    assert sorted(declared) == sorted(".".join(["attn_opt", *folder.parts]) for folder in folders)
    for folder in folders:
        assert (ROOT / folder / "__init__.py").exists()


def test_imports_point_down():
    """compiler → transforms → dialects, never the other way."""
    for source in SOURCES:
        package = source.relative_to(ROOT).parent.parts
        allowed = LAYERS[: LAYERS.index(package[0]) + 1]
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level > 0:
                target = [*package[: len(package) - node.level + 1], *(node.module or node.names[0].name).split(".")]
                assert target[0] in allowed, f"{source}:{node.lineno} imports {'.'.join(target)}"
