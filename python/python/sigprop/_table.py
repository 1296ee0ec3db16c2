"""Tables with numpy columns."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas
    import polars

# The number of rows that are shown at the beginning and at the end of a table.
_SHOWN = 8


class Table(Mapping[str, NDArray[Any]]):
    """Columns by name, each a read-only array. A number that does not exist is nan.

    >>> table = Table([{"site": "a", "variance": 1.0}, {"site": "b", "variance": None}])
    >>> table["variance"]
    array([ 1., nan])
    >>> list(table), len(table.rows)
    (['site', 'variance'], 2)
    """

    __slots__ = ("_columns", "_rows")

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        names = list(dict.fromkeys(name for row in rows for name in row))
        self._rows = rows
        self._columns = {name: _column([row.get(name) for row in rows]) for name in names}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict per row. A value that does not exist is None."""
        return [dict(row) for row in self._rows]

    def __getitem__(self, name: str) -> NDArray[Any]:
        try:
            return self._columns[name]
        except KeyError:
            raise KeyError(f"{name}: expected one of {', '.join(self._columns)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        return self._rows == other._rows if isinstance(other, Table) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._rows,)

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a DataFrame of pandas."""
        import pandas

        return pandas.DataFrame(dict(self._columns))

    def to_polars(self) -> polars.DataFrame:
        """The table as a DataFrame of polars."""
        import polars

        return polars.DataFrame({name: column.tolist() for name, column in self._columns.items()})

    # The columns that are shown, in order; all columns if it is empty.
    _summary: ClassVar[tuple[str, ...]] = ()

    def _cells(self) -> list[list[str]]:
        names = [name for name in self._summary or self._columns if name in self._columns]
        of = [[_cell(row.get(name)) for name in names] for row in self._rows]
        if len(of) > 2 * _SHOWN + 1:
            of = of[:_SHOWN] + [["…"] * len(names)] + of[-_SHOWN:]
        return [names, *of]

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        numeric = [self[name].dtype.kind == "f" for name in cells[0]]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            ).rstrip()
            for row in cells
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = self._cells()

        def line(cells: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def _column(values: list[Any]) -> NDArray[Any]:
    types = {type(value) for value in values}
    if types == {int}:
        column = np.array(values)
    elif types <= {int, float, type(None)}:
        column = np.array([np.nan if value is None else value for value in values], dtype=float)
    elif types == {str}:
        column = np.array(values, dtype=str)
    else:
        column = np.empty(len(values), dtype=object)
        column[:] = values
    column.flags.writeable = False
    return column


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, dict)):
        return str(len(value))
    return str(value)
