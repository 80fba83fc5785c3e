"""The checks of ``rivermouth doctor --master``: what the executors of a cluster have."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rivermouth.cli import setting_checks
from rivermouth.cli.checks import Check, requirements, spark_version
from rivermouth.errors import FolderError
from rivermouth.spark.runtime.executors import Executor, inspect_executors
from rivermouth.spark.runtime.session import cluster_session
from rivermouth.spark.runtime.versions import installed
from rivermouth.spec.locations import Location

_INSTALL = "Install it there, or send an environment along (spark.archives)."


def cluster(
    master: str, *, shared: Sequence[str] = (), conf: Mapping[str, str] | None = None
) -> Iterator[Check]:
    """Versions on every host of a cluster, settings of the session, and shared folders."""
    needed = [each.name for each in requirements() if each.extra is None]
    packages = ["rivermouth", *needed]
    try:
        spark = cluster_session(master, name="rivermouth doctor", conf=conf)
    except Exception as error:  # whatever it is, it is reported
        yield Check("Spark", "missing", _first_lines(error), f"Check the URL {master}.")
        return
    check = spark_version("Spark", spark.version, installed())
    yield replace(check, found=f"{check.found}, at {master}")
    try:
        found = setting_checks.settings_of(spark)
        yield from setting_checks.session_settings(found, version=spark.version)
        executors = inspect_executors(spark, packages=packages, shared=shared)
    except FolderError as error:
        yield Check("Shared folders", "missing", f"{error.what}: {error.there}", error.todo)
        return
    except Exception as error:
        todo = "Look into the logs of the cluster."
        yield Check("Executors", "missing", _first_lines(error), todo)
        return
    finally:
        spark.stop()
    yield Check("Executors", "ok", f"on {_listed(each.host for each in executors)}")
    yield python(executors)
    for package in packages:
        yield version(package, executors)
    for folder in shared:
        yield shared_folder(Location.of(folder).shown, executors)


def python(executors: Sequence[Executor]) -> Check:
    """Whether the workers' Python is of the driver's version."""
    here = platform.python_version()
    others = {each.host: each.python for each in executors if each.python != here}
    if not others:
        return Check("Python there", "ok", here)
    todo = "Set PYSPARK_PYTHON to one of the driver's version."
    return Check("Python there", "warning", f"{_by_value(others)}; here {here}", todo)


def version(package: str, executors: Sequence[Executor]) -> Check:
    """Whether a package is installed on every host, in the driver's version.

    Examples
    --------
    >>> there = [Executor("a", "3.11.7", {"numpy": "0.9"}, {}), Executor("b", "3.11.7", {}, {})]
    >>> version("numpy", there)  # doctest: +ELLIPSIS
    Check(name='numpy there', state='missing', found='not installed on b', todo='Install it...')
    """
    name, here = f"{package} there", importlib.metadata.version(package)
    absent = [each.host for each in executors if package not in each.versions]
    if absent:
        return Check(name, "missing", f"not installed on {_listed(absent)}", _INSTALL)
    found = {each.host: each.versions[package] for each in executors}
    others = {host: found for host, found in found.items() if found != here}
    if others:
        todo = f"Install {here} there, as here."
        return Check(name, "warning", f"{_by_value(others)}; here {here}", todo)
    return Check(name, "ok", here)


def shared_folder(folder: str, executors: Sequence[Executor]) -> Check:
    """Whether all hosts read and write a folder that the driver sees."""
    name = f"Shared {folder}"
    unseen = {each.host: each.unseen[folder] for each in executors if folder in each.unseen}
    if not unseen:
        return Check(name, "ok", "read and written by all of them")
    todo = "Mount it on every host, or give a URI that all of them reach."
    return Check(name, "missing", f"not shared: {_by_value(unseen)}", todo)


def _by_value(values: Mapping[str, str]) -> str:
    """Hosts by what they have.

    Examples
    --------
    >>> _by_value({"a": "1.0", "b": "2.0", "c": "1.0"})
    '1.0 on a, c; 2.0 on b'
    """
    hosts: dict[str, list[str]] = {}
    for host, value in values.items():
        hosts.setdefault(value, []).append(host)
    return "; ".join(f"{value} on {_listed(some)}" for value, some in hosts.items())


def _listed(hosts: Sequence[str] | Iterator[str]) -> str:
    named = list(hosts)
    more = f" and {len(named) - 8} more" if len(named) > 8 else ""
    return ", ".join(named[:8]) + more


def _first_lines(error: Exception) -> str:
    """An error without the stack traces that Spark puts behind it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    python = [line for line in lines if "Error" in line and not line.startswith(("\t", " "))]
    return (python or lines)[-1 if python else 0].strip()
