#!/usr/bin/env python3
"""Lines of the core by role, without tests: `python benches/size.py [ROOT]`.

A file counts up to its inline tests; files and modules that are compiled for tests alone do not count.
"""

import re
import sys
from pathlib import Path

ROLES = {
    "infinite width": ["src/mean_field"],
    "finite width, with its pass": ["src/finite_width", "src/predict/finite_width"],
    "prediction, but for that pass": ["src/predict"],
    "first step": ["src/first_step"],
}
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\n(?:#\[path[^\n]*\n)?(?:pub(?:\([a-z]+\))? )?mod (\w+);")


def files(folders: list[Path]) -> list[Path]:
    """The Rust files below some folders, without those of tests."""
    found = [file for folder in folders for file in folder.rglob("*.rs")]
    tests = set()
    for file in found:
        below = file.parent if file.name == "mod.rs" else file.with_suffix("")
        for name in TEST_MODULE.findall(file.read_text(encoding="utf-8")):
            tests |= {below / f"{name}.rs", below / name}
    return [file for file in found if not any(file == test or test in file.parents for test in tests)]


def lines(file: Path) -> int:
    """Lines before the tests of a file."""
    text = file.read_text(encoding="utf-8")
    return len(text.split("#[cfg(test)]\nmod tests", 1)[0].splitlines())


def main() -> None:
    """The command."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    counted: set[Path] = set()
    sizes = {}
    for role in sorted(ROLES, key=lambda role: -max(len(folder) for folder in ROLES[role])):
        own = files([root / folder for folder in ROLES[role]])
        sizes[role] = sum(lines(file) for file in own if file not in counted)
        counted.update(own)
    for role in ROLES:
        print(f"{sizes[role]:6d}  {role}")
    print(f"{sum(sizes.values()):6d}  core")


if __name__ == "__main__":
    main()
