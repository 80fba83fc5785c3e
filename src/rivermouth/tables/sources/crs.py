"""Reference systems as files name them, reduced to the EPSG code that a geometry column keeps."""

from __future__ import annotations

import re

WGS84 = 4326
UNKNOWN = 0

_CODE = re.compile(r"(?:EPSG|SRID)[:/](?:[\d.]*[:/])?(\d+)$", re.IGNORECASE)
_CRS84 = re.compile(r"(?:^|[:/])CRS84h?$", re.IGNORECASE)


def srid_of_crs(crs: object) -> int:
    """The EPSG code of a reference system given as a name or as PROJJSON, `UNKNOWN` if it has none.

    OGC:CRS84 is WGS 84 with the longitude first, as all places are here, so it counts as 4326.

    Examples
    --------
    >>> srid_of_crs("urn:ogc:def:crs:EPSG::3857"), srid_of_crs("OGC:CRS84"), srid_of_crs("local")
    (3857, 4326, 0)
    >>> srid_of_crs({"type": "ProjectedCRS", "id": {"authority": "EPSG", "code": 25832}})
    25832
    """
    if isinstance(crs, dict):
        stated = crs.get("id") or {}
        return srid_of_crs(f"{stated.get('authority')}:{stated.get('code')}")
    text = str(crs).strip()
    if _CRS84.search(text):
        return WGS84
    code = _CODE.search(text)
    return int(code[1]) if code else UNKNOWN
