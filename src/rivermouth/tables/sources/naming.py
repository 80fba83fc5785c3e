"""Names of tables as a user writes them."""

from __future__ import annotations

import re

from rivermouth.errors import DefinitionError

_NAME = re.compile(r'(?:"((?:[^"]|"")+)"|([^".]+))(?:\.|$)')


def parts_of(table: str, *, where: str, outer: str = "schema") -> tuple[str, ...]:
    """The names in ``table``, ``schema.table``, or either in double quotes, as they are written.

    Examples
    --------
    >>> parts_of("public.zones", where="tables.postgres"), parts_of('"two.dots"', where="")
    (('public', 'zones'), ('two.dots',))
    """
    found = _NAME.findall(table)
    whole = "".join(match[0] for match in _NAME.finditer(table)) == table
    if not 1 <= len(found) <= 2 or not whole or table.endswith("."):
        raise DefinitionError(
            where,
            f"{table!r} does not name a table",
            todo=f"Write 'table' or '{outer}.table', in double quotes a name that holds a dot.",
        )
    return tuple(quoted.replace('""', '"') or plain for quoted, plain in found)
