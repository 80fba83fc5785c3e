"""Several hosts on one machine: namespaces on a bridge of their own.

A host has a network, mounts, processes and a name of its own. It lives as long as its process 1,
which ends with the process that made it, even if that is killed: with it go its processes, mounts
and interfaces. What is left then, the bridge, control groups and files, is found by name and
removed when the next network of the name is opened. There is one of a name at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from tests.cluster.init import Layout

T = TypeVar("T")

ROOT = Path(__file__).parents[2]

_INIT = Path(__file__).with_name("init.py")
_PROGRAMS = ("ip", "unshare", "nsenter", "setpriv", "mount")
_PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", "/mnt", "/opt")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Site:
    """Where a network is: what its bridge, folder and control groups are called, and addresses."""

    name: str
    subnet: str

    @property
    def folder(self) -> Path:
        return Path("/run", self.name)

    def is_ours(self, name: str) -> bool:
        """Whether an interface or a control group of this name belongs here."""
        return name == self.name or name.startswith(f"{self.name}-")


def why_not() -> str | None:
    """Why this machine cannot be several hosts; None where it can."""
    if sys.platform != "linux" or os.getuid() != 0:
        return "hosts need namespaces, which need Linux and root"
    if missing := [program for program in _PROGRAMS if shutil.which(program) is None]:
        return f"hosts need {', '.join(missing)}: install iproute2 and util-linux"
    trial = "mount -t tmpfs tmpfs /mnt && ip link add trial type bridge && ip link add type veth"
    isolated = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc"]
    tried = subprocess.run([*isolated, "sh", "-c", trial], capture_output=True, text=True)
    return f"namespaces cannot be made here: {tried.stderr.strip()}" if tried.returncode else None


class Network:
    """A bridge, the hosts on it, and a folder for their files; `network` opens one.

    Parameters
    ----------
    site
        Where it is.
    names
        The hosts that there can be. Each knows the addresses of all.
    binds
        Folders outside, by where every host sees them.
    """

    def __init__(self, site: Site, names: Sequence[str], binds: Mapping[str, Path]) -> None:
        self.site = site
        self.addresses = {name: f"{site.subnet}.{at}" for at, name in enumerate(names, start=11)}
        self.binds = dict(binds)
        self.hosts: dict[str, Host] = {}
        self.hosts_file = site.folder / "etc-hosts"

    def open(self) -> None:
        self.site.folder.mkdir(mode=0o755)  # PostgreSQL runs as a user of its own, and must pass
        for folder in self.binds.values():
            folder.mkdir(parents=True, exist_ok=True)
        bridge = self.site.name
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "address", "add", f"{self.site.subnet}.1/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        lines = ["127.0.0.1 localhost", *(f"{ip} {name}" for name, ip in self.addresses.items())]
        self.hosts_file.write_text("".join(f"{line}\n" for line in lines))

    def host(self, name: str, *, hide: Sequence[Path] = ()) -> Host:
        """The host of this name, started if it does not run."""
        if name not in self.hosts:
            self.hosts[name] = Host(self, name)
        if not self.hosts[name].alive:
            self.hosts[name].start(hide=hide)
        return self.hosts[name]

    def close(self) -> None:
        for host in self.hosts.values():
            host.kill()
        remove_stale(self.site)


@contextlib.contextmanager
def network(site: Site, names: Sequence[str], binds: Mapping[str, Path]) -> Iterator[Network]:
    """A network that is gone afterwards, as is what an earlier one left behind."""
    with _one_at_a_time(site):
        remove_stale(site)
        opened = Network(site, names, binds)
        try:
            opened.open()
            yield opened
        finally:
            opened.close()


class Host:
    """One host: start it, run programs on it, and break it.

    Programs see ``/tmp``, ``/mnt``, ``/opt`` and the user's cache as the host's own.
    """

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name, self.address = network, name, network.addresses[name]
        # by its number: an interface's name has 15 letters at most
        self.link = f"{network.site.name}-{self.address.rpartition('.')[2]}"
        self.folder = network.site.folder / "hosts" / name
        self._launcher: subprocess.Popen[str] | None = None
        self._pid = 0
        self._limits: dict[str, dict[str, int]] = {}
        self._spawned: list[subprocess.Popen[str]] = []

    @property
    def alive(self) -> bool:
        return self._launcher is not None and self._launcher.poll() is None

    def start(self, *, hide: Sequence[Path] = ()) -> None:
        """Start the host, with empty private folders; it does not see those of `hide`."""
        assert not self.alive, f"{self.name} runs already"
        stage = self.folder / "stage"
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(parents=True)
        isolated = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc"]
        isolated += ["--propagation", "private", "--kill-child"]
        init = [sys.executable, "-I", "-S", str(_INIT), json.dumps(self._layout(hide, stage))]
        with (self.folder / "init.log").open("a") as log:
            self._launcher = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *isolated, *init],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        self._pid = wait_for(lambda: _only_child(self._launcher), f"{self.name} has no process 1")
        _run("ip", "link", "add", self.link, "type", "veth",
             "peer", "name", "eth0", "netns", str(self._pid))  # fmt: skip
        _run("ip", "link", "set", self.link, "master", self.network.site.name, "up")
        self._launcher.stdin.write("plugged in\n")
        self._launcher.stdin.flush()
        if self._launcher.stdout.readline() != "ready\n":
            raise RuntimeError(f"{self.name} fails:\n{(self.folder / 'init.log').read_text()}")

    def _layout(self, hide: Sequence[Path], stage: Path) -> Layout:
        private = [*_PRIVATE, str(Path.home() / ".cache")]
        private = [folder for folder in private if Path(folder).is_dir()]
        seen = {ROOT, Path(sys.prefix), Path(sys.base_prefix), self.network.site.folder} - set(hide)
        covered = [(path, path) for path in map(str, seen) if _is_below(path, private)]
        given = [
            (str(source), target)
            for target, source in self.network.binds.items()
            if Path(target) not in hide
        ]
        bound = [target for _, target in [*covered, *given]]
        return Layout(
            name=self.name, address=f"{self.address}/24", hosts=str(self.network.hosts_file),
            private=private, binds=[*covered, *given], stage=str(stage),
            hidden=[path for path in map(str, hide) if self._is_seen(path, private, bound)],
        )  # fmt: skip

    @staticmethod
    def _is_seen(path: str, private: Sequence[str], bound: Sequence[str]) -> bool:
        """Whether a host sees a folder unless it is hidden: one below a private one, if bound."""
        return not _is_below(path, private) or _is_below(path, bound)

    def entering(self) -> list[str]:
        """What a command begins with to run on this host; it ends if its starter does."""
        spaces = ["--mount", "--uts", "--net", "--pid"]
        groups = [str(self._group(controller) / "cgroup.procs") for controller in self._limits]
        joining = "".join(f"echo 0 > {shlex.quote(group)}; " for group in groups)
        joined = ["sh", "-c", f'{joining}exec "$0" "$@"'] if groups else []
        return [
            *("nsenter", f"--target={self._pid}", *spaces, "--"),
            *("setpriv", "--pdeathsig", "KILL", "env", "--chdir=/tmp", *joined),
        ]

    def spawn(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | IO[str] | None = None,
        stderr: int | IO[str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a program on this host, in its ``/tmp`` and with no more environment than `env`."""
        around = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        process = subprocess.Popen(
            [*self.entering(), *map(str, command)],
            env={**around, **env}, stdin=stdin, stdout=stdout, stderr=stderr, text=True,
        )  # fmt: skip
        self._spawned = [each for each in self._spawned if each.poll() is None] + [process]
        return process

    def run(
        self, command: Sequence[str | Path], *, env: Mapping[str, str], timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on this host to its end."""
        pipe = subprocess.PIPE
        with self.spawn(command, env=env, stdout=pipe, stderr=pipe) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def processes(self, pattern: str = "") -> list[int]:
        """The host's processes whose command line has a match of `pattern`, process 1 excepted."""
        if not self.alive:
            return []
        space = os.readlink(f"/proc/{self._pid}/ns/pid")
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # it ended meanwhile
                if entry.name.isdigit() and os.readlink(entry / "ns" / "pid") == space:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if int(entry.name) != self._pid and line and re.search(pattern, line):
                        found.append(int(entry.name))
        return found

    def signal(self, pattern: str, number: signal.Signals) -> int:
        """Send a signal to the `processes` of a pattern; how many there were."""
        found = self.processes(pattern)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(found)

    def kill(self) -> None:
        """End the host at once, as a power failure would. `start` begins with empty folders."""
        if self._launcher is None:
            return
        self.resume()
        self._launcher.kill()
        self._launcher.communicate()
        for process in self._spawned:
            process.wait()  # what had entered the host ends with what it had started there
        # its interfaces go with its network namespace, which the kernel takes apart in its own time
        wait_for(lambda: not _exists(self.link), f"{self.link} stays", seconds=60)
        for controller in self._limits:
            _remove_group(self._group(controller))
        self._limits.clear()

    def pause(self) -> None:
        """Stop all processes until `resume`; the host keeps its connections and says nothing."""
        while any(_state(pid) not in "TZ" for pid in self.processes()):
            self.signal("", signal.SIGSTOP)

    def resume(self) -> None:
        self.signal("", signal.SIGCONT)
        for process in self._spawned:  # nsenter stops itself when what it has started is stopped
            process.send_signal(signal.SIGCONT)

    def link_down(self) -> None:
        """Unplug the host's cable."""
        _run("ip", "link", "set", self.link, "down")

    def link_up(self) -> None:
        _run("ip", "link", "set", self.link, "up")

    def limit(self, *, cores: float | None = None, memory: int | None = None) -> None:
        """Bound what programs started from now on take together: cores, and bytes of memory.

        Needs control groups of version 1.
        """
        if cores is not None:
            period = 100_000
            quota = {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": round(cores * period)}
            self._limit("cpu", quota)
            self._limit("cpuacct", {})
        if memory is not None:
            self._limit("memory", {"memory.limit_in_bytes": memory})

    def used(self) -> float:
        """CPU seconds of all programs started since cores were first limited, ended ones too."""
        return int((self._group("cpuacct") / "cpuacct.usage").read_text()) / 1e9

    def memory(self) -> int:
        """Bytes that programs started since memory was limited hold, files in memory excepted."""
        told = (self._group("memory") / "memory.stat").read_text().split()
        return int(told[told.index("total_rss") + 1])

    def _limit(self, controller: str, values: dict[str, int]) -> None:
        self._limits[controller] = values
        group = self._group(controller)
        group.mkdir(exist_ok=True)
        for name, value in values.items():
            (group / name).write_text(str(value))

    def _group(self, controller: str) -> Path:
        return _CGROUPS / controller / f"{self.network.site.name}-{self.name}"


def can_limit() -> bool:
    """Whether `Host.limit` works here."""
    return (
        (_CGROUPS / "cpu" / "cpu.cfs_quota_us").parent.is_dir()
        and (_CGROUPS / "cpuacct").is_dir()
        and (_CGROUPS / "memory" / "memory.limit_in_bytes").exists()
    )


def remove_stale(site: Site) -> None:
    """Remove whatever a network left on this machine: processes, interfaces, groups and files."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            line = (entry / "cmdline").read_bytes()
            if (
                os.fsencode(_INIT) in line.split(b"\0")
                and os.fsencode(site.folder / "hosts") in line
            ):
                os.kill(int(entry.name), signal.SIGKILL)
    for link in _links(site):
        # one that belonged to a killed host may go by itself at this moment
        subprocess.run(["ip", "link", "delete", link], capture_output=True)
    wait_for(lambda: not _links(site), "interfaces stay")
    for group in _CGROUPS.glob("*/*"):
        if site.is_ours(group.name):
            _remove_group(group)
    if site.folder.exists():
        shutil.rmtree(site.folder)


def wait_for(look: Callable[[], T], failure: str, *, seconds: float = 10) -> T:
    """What `look` gives, once it gives something true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{failure} after {seconds:.0f} s")
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def _one_at_a_time(site: Site) -> Iterator[None]:
    """Wait until no other process has a network of this name."""
    with socket.socket(socket.AF_UNIX) as lock:  # an abstract name: nothing to clean up

        def is_free() -> bool:
            with contextlib.suppress(OSError):
                lock.bind(f"\0{site.name}")
                return True
            return False

        wait_for(is_free, "another run has its hosts here still", seconds=500)
        yield


def _only_child(process: subprocess.Popen[str] | None) -> int:
    assert process is not None
    if process.poll() is not None:
        raise RuntimeError(f"a host does not start: exit code {process.returncode}")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else 0


def _links(site: Site) -> list[str]:
    links = json.loads(_run("ip", "-json", "link"))
    return [link["ifname"] for link in links if site.is_ours(link["ifname"])]


def _exists(link: str) -> bool:
    return Path("/sys/class/net", link).exists()


def _state(pid: int) -> str:
    """The letter that the kernel gives a process's state; Z also for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def _remove_group(group: Path) -> None:
    def is_removed() -> bool:
        with contextlib.suppress(OSError):  # busy until the last process is reaped
            group.rmdir()
        return not group.exists()

    wait_for(is_removed, f"{group} stays")


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")
    return done.stdout
