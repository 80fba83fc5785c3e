"""The names of a result's columns: unique, or made so by suffixes."""

from __future__ import annotations

from collections.abc import Sequence

from rivermouth.errors import ColumnError, DefinitionError

#: what is appended to names that both sides have, left and right; None: such names are an error
Suffixes = tuple[str, str] | None


def result_names(
    where: str,
    left: Sequence[str],
    right: Sequence[str],
    suffixes: Suffixes,
    *,
    sides: tuple[str, str],
    todo: str,
    reserved: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """The columns of both sides by their names in the result.

    Only names that both sides have get a suffix; as in Spark, case makes no difference.

    Parameters
    ----------
    where, sides, todo
        For the message: the operator, both sides with their verb, and what helps.
    reserved
        Names of further columns, which get no suffix.

    Raises
    ------
    ColumnError
        Where two columns of the result would have one name.

    Examples
    --------
    >>> sides = ("the events have", "the table brings")
    >>> result_names("join_table", ["id", "x"], ["ID", "z"], ("", "_t"), sides=sides, todo="")
    (['id', 'x'], ['ID_t', 'z'])
    """
    if suffixes is not None and not _is_pair(suffixes):
        raise DefinitionError(
            where,
            f"suffixes is {suffixes!r}",
            todo='Give two different texts, as in suffixes=("", "_right").',
        )
    shared = {name.casefold() for name in left} & {name.casefold() for name in right}
    names = [
        [name + suffix if name.casefold() in shared else name for name in side]
        for side, suffix in zip((left, right), suffixes or ("", ""), strict=True)
    ]
    folded = [name.casefold() for name in (*names[0], *names[1], *reserved)]
    added = (*names[1], *reserved)
    if clash := sorted(name for name in added if folded.count(name.casefold()) > 1):
        raise ColumnError(
            where,
            f"the result would have two columns {clash[0]!r}",
            there=f"{sides[0]} {sorted(left)}, {sides[1]} {sorted(right)}",
            todo=todo,
        )
    return names[0], names[1]


def unique_names(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """Names for the right columns while the left ones still have those without a suffix.

    Examples
    --------
    >>> unique_names(["id", "x"], ["ID", "z"])
    ['_rivermouth_ID', 'z']
    """
    ours = {name.casefold() for name in left}
    return [f"_rivermouth_{name}" if name.casefold() in ours else name for name in right]


def _is_pair(suffixes: object) -> bool:
    return (
        isinstance(suffixes, (tuple, list))
        and len(suffixes) == 2
        and all(isinstance(suffix, str) for suffix in suffixes)
        and suffixes[0] != suffixes[1]
    )
