from collections.abc import Callable, Sequence

__version__: str

def run(
    words: Sequence[str], progress: Callable[[int, int], object] | None = None
) -> tuple[bytes, bytes | None]: ...
def main(words: Sequence[str]) -> int: ...
