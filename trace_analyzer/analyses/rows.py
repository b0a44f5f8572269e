"""Tables with numbered rows: what a join looks up by hash is a gather from here, in a tenth of the time."""

import polars as pl


def spread(ids: pl.Series, values: pl.Series, height: int) -> pl.Series:
    """A column of ``height`` rows with ``values`` at the rows ``ids``, null elsewhere; ids are distinct, none is null."""
    return pl.repeat(None, height, dtype=values.dtype, eager=True).scatter(ids, values).alias(values.name)


def rows_of(ids: pl.Series, height: int) -> pl.Series:
    """For every number under ``height`` the row at which ``ids`` has it; null where it does not."""
    return spread(ids, pl.int_range(ids.len(), dtype=pl.UInt32, eager=True), height)


def looked_up(table: pl.DataFrame, rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """The other columns of ``table`` for the key of each of ``rows``; null where the table does not have it.

    Keys are row numbers of some other table, distinct in this one.
    """
    known, asked = table.get_column(key), rows.get_column(key)
    height = 1 + max(int(ids.max() or 0) for ids in (known, asked))  # type: ignore[arg-type]
    return table.drop(key)[rows_of(known, height).gather(asked)]


def own(rows: pl.DataFrame, column: str, value: int) -> pl.DataFrame:
    """The rows with that value. Mostly these are all, and nothing has to be copied."""
    values = rows.get_column(column)
    all_ = values.null_count() == 0 and values.min() == values.max() == value
    return rows if all_ else rows.filter(pl.col(column) == value)


def changes(*columns: str) -> pl.Expr:
    """Whether a row differs from the one before in any of these columns, none of which has nulls; the first does."""
    return pl.any_horizontal(pl.col(c) != pl.col(c).shift(1) for c in columns).fill_null(True)


def sums_of_runs(rows: pl.DataFrame, by: list[str], sums: list[str]) -> pl.DataFrame:
    """``by`` and the ``sums`` of every run of rows that agree in ``by``; columns are integers without nulls.

    What comes in order need not be grouped: that takes ten times as long where most groups are small.
    """
    upto = rows.select(*by, pl.col(sums).cum_sum()).filter(changes(*by).shift(-1, fill_value=True))
    return upto.with_columns(pl.col(sums) - pl.col(sums).shift(1, fill_value=0))


def sums_by(rows: pl.DataFrame, by: list[str], sums: list[str]) -> pl.DataFrame:
    """``by``, a row number and a categorical, and the ``sums`` of the rows that agree in them.

    One integer for both is grouped in half of the time.
    """
    row, name = (pl.col(column) for column in by)
    both = (row.cast(pl.UInt64) * (1 << 32) + name.to_physical().cast(pl.UInt64)).alias("both")
    return rows.with_columns(both).group_by("both").agg(pl.col(by).first(), pl.col(sums).sum()).select(*by, *sums)
