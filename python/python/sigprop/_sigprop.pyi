from collections.abc import Callable, Sequence

__all__ = ["INIT_PY", "__version__", "main", "run"]

INIT_PY: str
__version__: str

def run(
    words: Sequence[str], progress: Callable[[int, int], object] | None = None
) -> tuple[bytes, bytes | None]: ...
def main(words: Sequence[str]) -> int: ...
