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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Place:
    """Where a server runs: on loopback, or on another host.

    Parameters
    ----------
    address
        What it listens on.
    entering
        What a command begins with to run there.
    folder
        Where its files are, in a folder of their own; None: among the temporary ones.
    """

    address: str = "127.0.0.1"
    entering: tuple[str, ...] = ()
    folder: Path | None = None


LOOPBACK = Place()


class Server:
    """A server that can be stopped and started again, with all that is in it.

    `url` is its address, `pid` its process.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        user: str,
        log: Path,
        stop: signal.Signals,
        url: str,
        ready: Callable[[], bool],
        place: Place = LOOPBACK,
    ) -> None:
        self._command, self._user, self._log, self._stop = command, user, log, stop
        self.url, self._ready, self._place = url, ready, place
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        pid = self._process.pid
        if not self._place.entering:
            return pid
        # what enters a host waits there for the server, its child
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("a") as output:
            self._process = subprocess.Popen(
                [*self._place.entering, *_as(self._user, self._command, tied=True)],
                stdout=output, stderr=output, cwd="/",
            )  # fmt: skip
        deadline = time.monotonic() + _PATIENCE
        while not self._ready():
            if self._process.poll() is not None:
                code = self._process.returncode
                pytest.fail(f"{self._command[0]} ended with {code}:\n{self._log.read_text()}")
            if time.monotonic() > deadline:
                pytest.fail(f"the server did not answer within {_PATIENCE:.0f} s")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it, if it runs."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            os.kill(self.pid, self._stop)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.kill(self.pid, signal.SIGKILL)
            process.wait()
        self._process = None


@contextlib.contextmanager
def _running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A fresh PostgreSQL with PostGIS; gives ``postgresql://rivermouth:...@127.0.0.1:PORT/test``."""
    with postgres_server() as server:
        yield server.url


@contextlib.contextmanager
def mariadb() -> Iterator[str]:
    """A fresh MariaDB; gives ``mysql://rivermouth:...@127.0.0.1:PORT/test``."""
    with mariadb_server() as server:
        yield server.url


@contextlib.contextmanager
def postgres_server(place: Place = LOOPBACK) -> Iterator[Server]:
    """The same PostgreSQL, to be stopped and started, and on another host if asked for."""
    initdb, server = _program("postgres", "initdb"), _program("postgres", "postgres")
    _need_postgis(server)
    with _folder(owner="postgres", within=place.folder) as folder:
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)  # the server's user reads it; the folder is closed to all others
        _run(
            initdb,
            *("-D", folder / "data", "-U", "rivermouth", "-A", "scram-sha-256"),
            *(f"--pwfile={secret}", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"),
            user="postgres",
        )
        with (folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet scram-sha-256\n")
        port = _free_port() if place == LOOPBACK else 5432
        command = [server, "-D", folder / "data", "-h", place.address, "-p", str(port), "-F"]
        # fsync is off (-F): this data dies with the tests
        command += ["-k", folder, "-c", "max_connections=50"]
        url = f"postgresql://rivermouth:{_escaped(PASSWORD)}@{place.address}:{port}"
        made = Server(
            command,
            user="postgres",
            log=folder / "log",
            stop=signal.SIGINT,
            url=f"{url}/test",
            ready=lambda: _make_postgis(url),
            place=place,
        )
        with _running(made) as started:
            yield started


@contextlib.contextmanager
def mariadb_server(place: Place = LOOPBACK) -> Iterator[Server]:
    """The same MariaDB, to be stopped and started, and on another host if asked for."""
    install, server = _program("mariadb", "mariadb-install-db"), _program("mariadb", "mariadbd")
    with _folder(owner="mysql", within=place.folder) as folder:
        _run(
            install,
            *("--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={folder}"),
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
            user="mysql",
        )
        # the network of the hosts, as PostgreSQL's samenet
        users = place.address if place == LOOPBACK else f"{place.address.rpartition('.')[0]}.%"
        start = folder / "start.sql"
        start.write_text(
            "CREATE DATABASE IF NOT EXISTS test CHARACTER SET utf8mb4;"
            f"CREATE USER IF NOT EXISTS rivermouth@'{users}' IDENTIFIED BY '{PASSWORD}';"
            f"GRANT ALL ON test.* TO rivermouth@'{users}';".replace(";", ";\n")
        )
        start.chmod(0o644)
        port = _free_port() if place == LOOPBACK else 3306
        command = [server, "--no-defaults", f"--datadir={folder / 'data'}", f"--port={port}"]
        command += [f"--bind-address={place.address}", f"--socket={folder / 'socket'}"]
        command += [f"--init-file={start}", f"--pid-file={folder / 'pid'}", f"--tmpdir={folder}"]
        command += ["--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0"]
        command += ["--innodb-buffer-pool-size=1G"]  # taken as it is needed
        made = Server(
            command,
            user="mysql",
            log=folder / "log",
            stop=signal.SIGTERM,
            url=f"mysql://rivermouth:{_escaped(PASSWORD)}@{place.address}:{port}/test",
            ready=lambda: _meet_mariadb(place.address, port),
            place=place,
        )
        with _running(made) as started:
            yield started


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
def _folder(owner: str, within: Path | None = None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rivermouth-server-", dir=within))
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


def _make_postgis(url: str) -> bool:
    import psycopg

    try:
        connection = psycopg.connect(f"{url}/postgres", autocommit=True, connect_timeout=5)
    except psycopg.OperationalError:
        return False
    with connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = 'test'").fetchone():
            return True
        connection.execute("CREATE DATABASE test")
    with psycopg.connect(f"{url}/test") as connection:
        connection.execute("CREATE EXTENSION postgis")
    return True


def _meet_mariadb(address: str, port: int) -> bool:
    import pymysql

    try:
        pymysql.connect(
            host=address, port=port, user="rivermouth", password=PASSWORD, database="test"
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
