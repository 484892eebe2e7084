"""The house rules that no other tool checks: sizes and names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CODE = ("gymckpt", "servers", "tests", ".ci")
SUFFIXES = {".py", ".pyi", ".js", ".mjs", ".ts", ".sh", ""}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
EMPTY_NAMES = {"utils", "helpers", "manager", "common", "impl"}


def is_ours(path: Path) -> bool:
    """Whether people write and read the file: not generated, not installed, not a cache."""
    skipped = {"node_modules", "__pycache__"} & set(path.parts)
    return path.is_file() and path.suffix in SUFFIXES and "_pb2" not in path.name and not skipped


def code_files() -> Iterator[Path]:
    for folder in CODE:
        yield from (path for path in sorted((REPOSITORY / folder).rglob("*")) if is_ours(path))
    yield REPOSITORY / "Makefile"


def long_functions(source: str, limit: int) -> list[str]:
    """`name: lines` of each function that takes more than `limit` lines, decorators and docstring included."""
    nodes = ast.walk(ast.parse(source))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [f"{node.name}: {lines}" for node in functions if (lines := function_lines(node)) > limit]


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return (node.end_lineno or node.lineno) - first + 1


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {path.relative_to(REPOSITORY): len(path.read_text().splitlines()) for path in code_files()}
    assert Path("gymckpt/__init__.py") in lengths
    assert {str(path): lines for path, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_50_lines() -> None:
    python = [path for path in code_files() if path.suffix == ".py"]
    found = {str(path.relative_to(REPOSITORY)): long_functions(path.read_text(), MAX_FUNCTION_LINES) for path in python}
    assert {path: functions for path, functions in found.items() if functions} == {}


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_a_function_is_measured_from_its_decorator_to_its_last_line(keyword: str) -> None:
    source = f"@decorated\n{keyword} three():\n    return 1\n\n\n{keyword} two():\n    return 2\n"
    assert long_functions(source, limit=2) == ["three: 3"]
    assert long_functions(source, limit=3) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    paths = [path.relative_to(REPOSITORY) for path in code_files()]
    assert [str(path) for path in paths if EMPTY_NAMES & {path.stem, *path.parts}] == []
