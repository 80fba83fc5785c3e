"""The hosts themselves: apart, breakable, and gone without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster import hosts
from tests.cluster.hosts import ROOT, Network, Site

CANNOT = hosts.why_not()
pytestmark = pytest.mark.skipif(CANNOT is not None, reason=str(CANNOT))

SITE = Site("rmhosts", "10.78.0")  # beside the lab's
SHARED = SITE.folder / "shared"

#: answers every connection with the name of its host, once a line of input has come
SERVER = """
import socket, socketserver
class Name(socketserver.StreamRequestHandler):
    def handle(self):
        self.rfile.readline()
        self.wfile.write(socket.gethostname().encode())
socketserver.ThreadingTCPServer.allow_reuse_address = True
print("listens", flush=True)
socketserver.ThreadingTCPServer(("", 5000), Name).serve_forever()
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000), 1) as connection:
    connection.sendall(b"who?\\n")
    print(connection.recv(99).decode())
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with hosts.network(SITE, ["a", "b"], {"/mnt/shared": SHARED}) as made:
        yield made


def run(host, *command):
    return host.run(command, env={})


def ask(host, other):
    done = run(host, sys.executable, "-c", ASK, other)
    return done.stdout.strip() if done.returncode == 0 else None


@pytest.fixture
def serving(network):
    """The two hosts; b answers."""
    a, b = network.host("a"), network.host("b")
    server = b.spawn([sys.executable, "-c", SERVER], env={}, stdout=subprocess.PIPE)
    assert server.stdout.readline() == "listens\n"
    hosts.wait_for(lambda: ask(a, "b"), "b does not answer")
    yield a, b
    server.kill()
    server.communicate()


def test_hosts_have_names_files_and_processes_of_their_own(network):
    a, b = network.host("a"), network.host("b")
    assert run(a, "hostname").stdout == "a\n"
    for place in ("/tmp", "/dev/shm", "/opt", str(Path.home() / ".cache")):
        if Path(place).is_dir():
            assert run(a, "touch", f"{place}/of-a").returncode == 0
            assert run(b, "test", "-e", f"{place}/of-a").returncode == 1
            assert not Path(place, "of-a").exists()
    assert run(a, "touch", "/mnt/shared/of-both").returncode == 0
    assert run(b, "test", "-e", "/mnt/shared/of-both").returncode == 0
    assert (SHARED / "of-both").exists()
    # process 1, and the one that looks
    assert len(run(a, "sh", "-c", "echo /proc/[0-9]*").stdout.split()) == 2
    assert run(a, sys.executable, "-c", "import pyarrow").returncode == 0


def test_hosts_reach_each_other_by_name_and_nobody_else(serving):
    a, b = serving
    assert ask(a, "b") == "b"
    assert ask(b, b.address) == "b"
    assert run(a, "ip", "route").stdout.split()[0] == "10.78.0.0/24"


def test_a_link_down_cuts_a_host_off_until_it_is_up(serving):
    a, b = serving
    b.link_down()
    assert ask(a, "b") is None
    b.link_up()
    assert hosts.wait_for(lambda: ask(a, "b"), "b does not come back") == "b"


def test_a_paused_host_says_nothing_until_it_resumes(serving):
    a, b = serving
    b.pause()
    assert ask(a, "b") is None
    b.resume()
    assert ask(a, "b") == "b"


def test_a_host_that_was_paused_can_be_killed(network):
    a = network.host("a")
    napping = a.spawn(["sleep", "1000"], env={})
    hosts.wait_for(lambda: a.processes("^sleep"), "nobody sleeps")
    a.pause()
    time.sleep(0.2)  # what had entered the host stops itself, too
    a.resume()
    a.kill()
    assert napping.poll() is not None


def test_processes_of_a_host_are_found_and_killed_alone(network):
    a, b = network.host("a"), network.host("b")
    napping = [host.spawn(["sleep", "1000"], env={}) for host in (a, b)]
    hosts.wait_for(lambda: a.processes("^sleep") and b.processes("^sleep"), "nobody sleeps")
    assert a.signal("^sleep", signal.SIGKILL) == 1
    assert napping[0].wait(5) != 0
    assert napping[1].poll() is None
    napping[1].kill()
    napping[1].wait()
    hosts.wait_for(lambda: not b.processes("sleep"), "what nsenter started outlives it")


def test_a_killed_host_comes_back_empty(network):
    a = network.host("a")
    napping = a.spawn(["sleep", "1000"], env={})
    run(a, "touch", "/tmp/before")
    a.kill()
    assert napping.wait(5) != 0
    assert not a.alive
    a = network.host("a", hide=[ROOT / "src"])
    assert "before" not in run(a, "ls", "/tmp").stdout.split()
    assert run(a, "ls", ROOT / "src").stdout == ""
    assert (ROOT / "src" / "rivermouth").exists()
    a.kill()


@pytest.mark.skipif(not hosts.can_limit(), reason="there are no control groups of version 1")
def test_a_quarter_of_a_core_takes_four_times_as_long(network):
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    b = network.host("b")
    b.limit(cores=0.25, memory=256 << 20)
    began = time.monotonic()
    assert run(b, sys.executable, "-I", "-S", "-c", burn).returncode == 0
    assert time.monotonic() - began > 0.9
    assert 0.25 < b.used() < 0.6
    assert run(b, sys.executable, "-c", "bytes(range(256)) * (2 << 20)").returncode != 0
    b.kill()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{SITE.name}-*"))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_run_that_was_ended(end):
    site = Site("rmended", "10.79.0")
    script = f"""
        import sys, time
        sys.path.insert(0, {str(ROOT)!r})
        from tests.cluster import hosts
        with hosts.network(hosts.{site}, ["a", "b"], {{}}) as made:
            made.host("b").limit(cores=1) if hosts.can_limit() else None
            sleeping = made.host("a").spawn(["sleep", "54321"], env={{}})
            print("up", flush=True)
            time.sleep(1000)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "up\n"
        hosts.wait_for(lambda: _running("sleep\x0054321"), "the host runs nothing")
        process.send_signal(end)
    hosts.wait_for(lambda: not _running("sleep\x0054321"), "a program outlives its run")
    if end is signal.SIGKILL:  # the next run does this first
        assert site.folder.exists()
        hosts.remove_stale(site)
    assert not _running(str(site.folder))
    assert not hosts._links(site)
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{site.name}-*"))
    assert not site.folder.exists()


def _running(words: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if words in (entry / "cmdline").read_text() and int(entry.name) != os.getpid():
                found.append(entry.name)
        except OSError:
            pass
    return found
