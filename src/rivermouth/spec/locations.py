"""Where a file or folder is: a path, or a URI with credentials and a query of its own."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit
from urllib.request import url2pathname

from rivermouth.errors import DefinitionError

_URI = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
#: what of a URI's query may be shown; anything else may be a secret
_PUBLIC = {"endpoint_override", "region", "scheme"}
#: where all before the @ is a pair of keys; elsewhere it may name a user or a container
_KEYED = {"s3", "s3a", "gs", "gcs"}


class Location(str):
    """A path or URI as it was written; its repr shows no secret.

    ``location / name`` extends the path and leaves the query behind it, where pyarrow looks for
    it: ``s3://bucket/zones?region=eu-west-1``.

    Examples
    --------
    >>> folder = Location("s3://key:secret@bucket/zones?region=eu-west-1&scheme=http")
    >>> folder / "v1"
    's3://bucket/zones/v1?region=eu-west-1&scheme=http'
    >>> str(folder / "v1")
    's3://key:secret@bucket/zones/v1?region=eu-west-1&scheme=http'
    >>> Location("/data") / "v1" / "rows.arrow"
    '/data/v1/rows.arrow'
    """

    __slots__ = ()

    @classmethod
    def given(cls, path: str | os.PathLike[str] | None, *, where: str) -> Location | None:
        """An argument `path` as it was written; None stays None."""
        if path is None:
            return None
        if not isinstance(path, (str, os.PathLike)):
            raise DefinitionError(where, f"path is {path!r}", todo="Give a folder or a URI.")
        return cls(os.fspath(path))

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Location:
        """`path` as it is found from any working folder: absolute, or a URI as it was written.

        Examples
        --------
        >>> Location.of("file:///data/two%20words"), Location.of("s3a://bucket/zones")
        ('/data/two words', 's3a://bucket/zones')
        """
        text = os.fspath(path)
        if not _URI.match(text):
            return cls(os.path.abspath(os.path.expanduser(text)))
        parts = urlsplit(text)
        return cls(url2pathname(parts.path)) if parts.scheme == "file" else cls(text)

    @property
    def is_uri(self) -> bool:
        """Whether it is a URI, not a path of this host."""
        return _URI.match(self) is not None

    @property
    def scheme(self) -> str:
        """The URI's scheme, in small letters; of a path nothing."""
        found = _URI.match(self)
        return found[0][:-3].lower() if found else ""

    @property
    def name(self) -> str:
        """The last part of the path.

        Examples
        --------
        >>> Location("s3://bucket/zones/?region=eu-west-1").name, Location("/a/b.geojson").name
        ('zones', 'b.geojson')
        """
        return os.path.basename(self._split()[0].rstrip("/"))

    @property
    def for_arrow(self) -> str:
        """As pyarrow.fs takes it: what Hadoop calls ``s3a`` is ``s3`` there."""
        return f"s3{self[3:]}" if self.scheme == "s3a" else str(self)

    @property
    def for_spark(self) -> str:
        """As Spark takes it: without query and keys, which Hadoop has in its own settings.

        Examples
        --------
        >>> Location("s3a://key:secret@bucket/zones?region=eu-west-1").for_spark
        's3a://bucket/zones'
        """
        return _without_secrets(self._split()[0]) if self.is_uri else str(self)

    @property
    def shown(self) -> str:
        """The same without credentials, and of the query only what is known to be none."""
        path, query = self._split()
        if not self.is_uri:
            return path
        public = [part for part in query[1:].split("&") if _is_public(part)]
        return _without_secrets(path) + ("?" + "&".join(public) if public else "")

    def redacted(self, text: str) -> str:
        """`text`, such as another library's error, without this location's secrets."""
        text = text.replace(self, self.shown).replace(self.for_arrow, self.shown)
        for secret in sorted(self._secrets(), key=len, reverse=True):
            for written in {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}:
                text = text.replace(written, "***")
        return text

    def __truediv__(self, name: str) -> Location:
        path, query = self._split()
        return Location(f"{path.rstrip('/')}/{name}{query}")

    def __repr__(self) -> str:
        return repr(self.shown)

    def _split(self) -> tuple[str, str]:
        """The path with all before it, and the query with its question mark."""
        if not self.is_uri:
            return str(self), ""
        path, mark, query = self.partition("?")
        return path, mark + query

    def _secrets(self) -> set[str]:
        if not self.is_uri:
            return set()
        path, query = self._split()
        user, at, _ = _authority(path)[1].rpartition("@")
        name, _, password = user.partition(":")
        found = {password, unquote(password)} if at else set()
        if at and self.scheme in _KEYED:
            found |= {name, unquote(name)}
        parts = query[1:].split("&")
        found |= {value for p in parts if not _is_public(p) for _, value in parse_qsl(p)}
        return {secret for secret in found if len(secret) > 3}


def _authority(uri: str) -> tuple[str, str, str]:
    """The scheme with its slashes, the authority, and the path."""
    scheme, slashes, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    if ":" in authority and "@" not in authority and scheme.lower() in _KEYED and "@" in path:
        keys, at, behind = rest.rpartition("@")  # a key with a slash that is not escaped
        bucket, slash, path = behind.partition("/")
        authority = keys + at + bucket
    return scheme + slashes, authority, slash + path


def _without_secrets(uri: str) -> str:
    scheme, authority, path = _authority(uri)
    user, at, host = authority.rpartition("@")
    shown = "" if scheme[:-3].lower() in _KEYED else user.partition(":")[0]
    return f"{scheme}{shown}{at if shown else ''}{host}{path}"


def _is_public(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name in _PUBLIC and "@" not in unquote(value)
