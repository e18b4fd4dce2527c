"""What is installed is what is in the folders."""

import pathlib
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_folder_of_sources_is_a_package():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {file.parent for top in ("compiler", "dialects", "transforms") for file in (ROOT / top).rglob("*.py")}
    assert set(packages) == {"attn_opt." + ".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert all((folder / "__init__.py").exists() for folder in folders)
