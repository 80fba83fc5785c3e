"""Real servers for the tests: each under a folder of its own, on loopback, gone when they end.

A test asks for the fixture `postgres_url` or `mariadb_url` (import it in a conftest). Where the
programs are not installed the test is skipped with a word; with RIVERMOUTH_REQUIRE_SERVERS=1, as
in CI, that is a failure.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

PASSWORD = "s3cr3t/p@ss word"  # letters that a URL must escape, to find where they leak
_PLACES = {
    "postgres": ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"),
    "mariadb": ("/usr/sbin", "/usr/bin", "/usr/libexec"),
}
_PATIENCE = 60.0  # seconds until a server that does not answer is given up


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL of this session's own, with PostGIS in its database."""
    with postgres() as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_url() -> Iterator[str]:
    """The URL of a MariaDB of this session's own, with an empty database."""
    with mariadb() as url:
        yield url


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A fresh PostgreSQL with PostGIS; gives ``postgresql://rivermouth:...@127.0.0.1:PORT/test``."""
    initdb, server = _program("postgres", "initdb"), _program("postgres", "postgres")
    _need_postgis(server)
    with _folder(owner="postgres") as folder:
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)  # the server's user reads it; the folder is closed to all others
        _run(
            initdb,
            *("-D", folder / "data", "-U", "rivermouth", "-A", "scram-sha-256"),
            *(f"--pwfile={secret}", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"),
            user="postgres",
        )
        port = _free_port()
        command = [server, "-D", folder / "data", "-h", "127.0.0.1", "-p", str(port), "-F"]
        # fsync is off (-F): this data dies with the tests
        command += ["-k", folder, "-c", "max_connections=50"]
        url = f"postgresql://rivermouth:{_escaped(PASSWORD)}@127.0.0.1:{port}"
        with _running(command, user="postgres", log=folder / "log", stop=signal.SIGINT) as alive:
            _wait(lambda: _make_postgis(url), alive)
            yield f"{url}/test"


@contextlib.contextmanager
def mariadb() -> Iterator[str]:
    """A fresh MariaDB; gives ``mysql://rivermouth:...@127.0.0.1:PORT/test``."""
    install, server = _program("mariadb", "mariadb-install-db"), _program("mariadb", "mariadbd")
    with _folder(owner="mysql") as folder:
        _run(
            install,
            *("--no-defaults", f"--datadir={folder / 'data'}", "--skip-test-db"),
            "--auth-root-authentication-method=normal",
            user="mysql",
        )
        start = folder / "start.sql"
        start.write_text(
            "CREATE DATABASE test CHARACTER SET utf8mb4;"
            f"CREATE USER rivermouth@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';"
            "GRANT ALL ON test.* TO rivermouth@'127.0.0.1';".replace(";", ";\n")
        )
        start.chmod(0o644)
        port = _free_port()
        command = [server, "--no-defaults", f"--datadir={folder / 'data'}", f"--port={port}"]
        command += ["--bind-address=127.0.0.1", f"--socket={folder / 'socket'}"]
        command += [f"--init-file={start}", f"--pid-file={folder / 'pid'}"]
        command += ["--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0"]
        with _running(command, user="mysql", log=folder / "log", stop=signal.SIGTERM) as alive:
            _wait(lambda: _meet_mariadb(port), alive)
            yield f"mysql://rivermouth:{_escaped(PASSWORD)}@127.0.0.1:{port}/test"


def _program(server: str, name: str) -> str:
    folders = [
        str(folder)
        for pattern in _PLACES[server]
        for folder in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    ]
    found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    return found or _absent(f"{name} is not installed")


def _need_postgis(server: str) -> None:
    settings = subprocess.run(
        [Path(server).with_name("pg_config"), "--sharedir"], capture_output=True, text=True
    )
    share = Path(settings.stdout.strip() or f"/usr/share/postgresql/{Path(server).parts[-3]}")
    if not (share / "extension" / "postgis.control").exists():
        _absent("PostGIS is not installed")


def _absent(what: str) -> NoReturn:
    said = f"{what}: `make servers` installs it"
    if os.environ.get("RIVERMOUTH_REQUIRE_SERVERS") == "1":
        pytest.fail(said)
    pytest.skip(said)


@contextlib.contextmanager
def _folder(owner: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rivermouth-server-"))
    if os.getuid() == 0:  # neither server runs as root
        os.chown(folder, pwd.getpwnam(owner).pw_uid, pwd.getpwnam(owner).pw_gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as(user: str, command: Sequence[str | Path], *, tied: bool = False) -> list[str]:
    """`command` as `user` when we are root; when `tied`, it ends if this process is killed."""
    change = ["--reuid", user, "--regid", user, "--init-groups"] if os.getuid() == 0 else []
    bond = ["--pdeathsig", "SIGTERM"] if tied and shutil.which("setpriv") else []
    before = ["setpriv", *change, *bond] if change or bond else []
    return [*before, *(str(part) for part in command)]


def _run(*command: str | Path, user: str) -> None:
    done = subprocess.run(
        _as(user, command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/"
    )
    if done.returncode:
        pytest.fail(f"{command[0]} failed:\n{done.stdout}")


@contextlib.contextmanager
def _running(
    command: Sequence[str | Path], *, user: str, log: Path, stop: signal.Signals
) -> Iterator[Callable[[], None]]:
    """Run `command` until the block ends; gives a check that fails, with the log, once it died."""
    with log.open("w") as output:
        process = subprocess.Popen(
            _as(user, command, tied=True), stdout=output, stderr=output, cwd="/"
        )

    def alive() -> None:
        if process.poll() is not None:
            pytest.fail(f"{command[0]} ended with {process.returncode}:\n{log.read_text()}")

    try:
        yield alive
    finally:
        process.send_signal(stop)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(ready: Callable[[], bool], alive: Callable[[], None]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not ready():
        alive()
        if time.monotonic() > deadline:
            pytest.fail(f"the server did not answer within {_PATIENCE:.0f} s")
        time.sleep(0.1)


def _make_postgis(url: str) -> bool:
    import psycopg

    try:
        connection = psycopg.connect(f"{url}/postgres", autocommit=True, connect_timeout=5)
    except psycopg.OperationalError:
        return False
    with connection:
        connection.execute("CREATE DATABASE test")
    with psycopg.connect(f"{url}/test") as connection:
        connection.execute("CREATE EXTENSION postgis")
    return True


def _meet_mariadb(port: int) -> bool:
    import pymysql

    try:
        pymysql.connect(
            host="127.0.0.1", port=port, user="rivermouth", password=PASSWORD, database="test"
        ).close()
    except pymysql.err.OperationalError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _escaped(secret: str) -> str:
    from urllib.parse import quote

    return quote(secret, safe="")
