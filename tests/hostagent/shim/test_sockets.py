# SPDX-License-Identifier: Apache-2.0
"""The socket shim in programs with real sockets, on loopback addresses."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shim_rig import compile_c, needs_compiler, steers

pytestmark = [needs_compiler, pytest.mark.skipif(not steers(), reason="needs Linux 6.3 or newer")]

HERE, THERE = "127.0.0.1", "127.0.0.2"
TCP_LINE = f"tcp job {HERE} {THERE}"
PRELUDE = """
import json, os, socket, sys, threading
def connect(to, family=socket.AF_INET, kind=socket.SOCK_STREAM, bind=None, tos=None, wait=True):
    made = socket.socket(family, kind)
    if tos is not None:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    if bind is not None:
        made.bind(bind)
    made.setblocking(wait)
    made.connect_ex(to)
    return made
def port(made): return made.getsockname()[1]
def dscp(made): return made.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2
def listen(address, number=0, family=socket.AF_INET):
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, number))
    made.listen(512)
    return made
"""


class Program:
    """Python programs with the shim. `port` is that of a listener at THERE."""

    def __init__(self, shim: Path, folder: Path, port: int) -> None:
        self.shim, self.map, self.log, self.port = shim, folder / "sockets", folder / "shim.log", port

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self.shim), "POLYRHYTHM_SOCKET_MAP": str(self.map), "PATH": os.environ["PATH"],
            "POLYRHYTHM_SOCKET_JOB": "job", "POLYRHYTHM_SHIM_LOG": str(self.log), **more,
        }  # fmt: skip

    def run(self, code: str, map_text: str = "", **more: str) -> Any:
        """The JSON that the code prints."""
        if map_text:
            self.map.write_text(map_text)
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", f"{PRELUDE}\nTO = ({THERE!r}, {self.port})\n{code}"],
            env=self.environment(**more), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def program(built: Path, tmp_path: Path) -> Iterator[Program]:
    with socket.create_server((THERE, 0), backlog=1024) as listener:
        yield Program(built / "shim" / "libpolyrhythm-sockets.so", tmp_path, listener.getsockname()[1])


Run = Callable[..., Any]
FOUR = "made = [connect(TO) for _ in range(4)]\n"
PORTS = "print(json.dumps([port(m) for m in made]))"


def test_connections_take_their_entries_in_turn_and_free_numbers_again(program: Program) -> None:
    text = f"{TCP_LINE} 0 26 41000-41009 - -\n{TCP_LINE} 1 27 42000-42009 - -\n"
    code = FOUR + (
        "made[1].close()\nmade[2].close()\nmade += [connect(TO), connect(TO)]\n"
        "print(json.dumps([[port(m), dscp(m)] for m in made if m.fileno() >= 0]))"
    )
    found = program.run(code, text)
    assert [(port // 1000, dscp) for port, dscp in found] == [(41, 26), (42, 27), (42, 27), (41, 26)]
    assert len({port for port, _ in found}) == 4


def test_ports_fulfil_the_conditions_of_both_directions(program: Program) -> None:
    sent, returned = [(0x8421, 0x0011, 1), (0x0F0F, 0, 0)], [(0x00F0, 0x8000, 0), (0x3003, 0x0101, 1)]
    text = ",".join(f"{a:x}:{b:x}:{odd}" for a, b, odd in sent)
    back = ",".join(f"{a:x}:{b:x}:{odd}" for a, b, odd in returned)
    made = program.run(FOUR + PORTS, f"{TCP_LINE} 0 - - {text} {back}\n")
    for own in made:
        for local, peer, odd in (*sent, *returned):
            assert ((own & local).bit_count() + (program.port & peer).bit_count()) % 2 == odd


def test_where_no_port_serves_both_ways_what_is_sent_goes_first(program: Program) -> None:
    made = program.run(FOUR + PORTS, f"{TCP_LINE} 0 - - 1:0:1 1:0:0\n")
    assert all(port % 2 for port in made)
    made = program.run(FOUR + PORTS, f"{TCP_LINE} 0 - - - 1:0:0\n")
    assert not any(port % 2 for port in made)


@pytest.mark.parametrize(
    "how",
    [
        f"connect(('::ffff:{THERE}', TO[1]), socket.AF_INET6)",
        "connect(TO, wait=False)",
        f"connect(TO, bind=({HERE!r}, 0))",
        "connect(TO, bind=('0.0.0.0', 0))",
        f"connect(('::ffff:{THERE}', TO[1]), socket.AF_INET6, bind=('::', 0), wait=False)",
    ],
    ids=["mapped", "non-blocking", "bound to port 0", "bound to any", "all of it"],
)
def test_every_kind_of_connection_is_steered_and_marked(program: Program, how: str) -> None:
    code = f"made = {how}\nprint(json.dumps([port(made), dscp(made)]))"
    port, dscp = program.run(code, f"{TCP_LINE} 0 26 41000-41099 - -\n")
    assert 41000 <= port < 41100
    assert dscp == 26


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (f"connect(TO, bind=({HERE!r}, free))", "port(made) == free"),
        ("connect(TO, tos=8 << 2)", "dscp(made) == 8"),
        ("asked(socket.socket())", "port(made) == before"),
        ("ranged(socket.socket())", "port(made) == 43210"),
        ("connect((TO[0], int(os.environ['MASTER_PORT'])))", "dscp(made) == 0"),
        ("connect(('127.0.0.3', TO[1]))", "dscp(made) == 0"),
    ],
    ids=[
        "a port",
        "a class",
        "its port before it connects",
        "a range",
        "the rendezvous",
        "no fabric address",
    ],
)
def test_what_the_program_chooses_stays(program: Program, how: str, expected: str) -> None:
    code = f"""
before = 0
with socket.socket() as probe:
    probe.bind(({HERE!r}, 0))
    free = port(probe)
def asked(made):
    global before
    made.bind(({HERE!r}, 0))
    before = port(made)
    assert before
    made.connect(TO)
    return made
def ranged(made):
    made.setsockopt(socket.IPPROTO_IP, 51, (43210 << 16 | 43210).to_bytes(4, sys.byteorder))
    made.connect(TO)
    return made
rendezvous = listen({THERE!r}, int(os.environ["MASTER_PORT"]))
made = {how}
print(json.dumps({expected}))
"""
    with socket.create_server((THERE, 0)) as free:
        master = str(free.getsockname()[1])
    assert program.run(code, f"{TCP_LINE} 0 26 41000-41099 - -\n", MASTER_PORT=master)


def test_both_sides_are_marked_also_behind_a_listener_for_all_addresses(program: Program) -> None:
    code = f"""
found = []
for address in ({THERE!r}, "0.0.0.0"):
    listener = listen(address)
    one = connect(({THERE!r}, port(listener)))
    other, _ = listener.accept()
    found.append([dscp(listener), dscp(one), dscp(other)])
print(json.dumps(found))
"""
    text = f"{TCP_LINE} 0 26 - - -\ntcp job {THERE} {HERE} 0 27 - - -\n"
    assert program.run(code, text) == [[27, 26, 27], [0, 26, 27]]


@pytest.mark.parametrize(("environment", "expected"), [
    ({"POLYRHYTHM_SOCKET_PACE": "1562500"}, [1_562_500, 1_562_500, 4_000, None]),
    ({}, [None, None, 4_000, None]),
    ({"POLYRHYTHM_SOCKET_PACE": "fast"}, [None, None, 4_000, None]),
])  # fmt: skip
def test_steered_tcp_connections_are_paced_unless_the_program_does_it(
    program: Program, environment: dict[str, str], expected: list[int | None]
) -> None:
    """Both ends of a connection, one with a rate of its own, and one to an address that the map lacks."""
    code = f"""
PACE = 47  # SO_MAX_PACING_RATE
def rate(made):
    found = int.from_bytes(made.getsockopt(socket.SOL_SOCKET, PACE, 8), "little")
    return None if found == (1 << 64) - 1 else found
listener = listen({THERE!r})
one = connect(({THERE!r}, port(listener)))
other, _ = listener.accept()
own = socket.socket()
own.setsockopt(socket.SOL_SOCKET, PACE, (4000).to_bytes(8, "little"))
own.connect(TO)
aside = listen("127.0.0.9")
print(json.dumps([*map(rate, (one, other, own, connect(("127.0.0.9", port(aside)))))]))
"""
    text = f"{TCP_LINE} 0 26 - - -\ntcp job {THERE} {HERE} 0 27 - - -\n"
    assert program.run(code, text, **environment) == expected


def test_ports_in_use_and_ports_that_were_just_used(program: Program) -> None:
    """A listener has the only port: the call runs unchanged. A restarted program finds its ports in TIME-WAIT."""
    code = f"taken = listen({HERE!r}, 41500)\n{FOUR}{PORTS}"
    assert not set(program.run(code, f"{TCP_LINE} 0 - 41500 - -\n")) & {41500, 0}
    text = f"{TCP_LINE} 0 - 41600-41603 - -\n"
    used: list[int] = []
    for _ in range(3):
        used += program.run(
            "made = [connect(TO), connect(TO)]\n" + PORTS + "\nfor m in made: m.close()", text
        )
    assert set(used[:4]) <= set(range(41600, 41604))
    assert 0 not in used


def test_processes_begin_at_different_ports_of_a_range(program: Program) -> None:
    """Else many would try the lowest ones, one after another."""
    text = f"{TCP_LINE} 0 - 41000-41031,42000-42031 - -\n"
    firsts = [program.run("print(json.dumps(port(connect(TO))))", text) for _ in range(6)]
    assert all(41000 <= own < 41032 or 42000 <= own < 42032 for own in firsts)
    assert max(firsts) - min(firsts) > 8


def test_threads_and_a_forked_child_have_numbers_of_their_own(program: Program) -> None:
    lines = "".join(f"{TCP_LINE} {i} - {41000 + 100 * i}-{41009 + 100 * i} - -\n" for i in range(8))
    code = """
made = []
threads = [threading.Thread(target=lambda: made.append(connect(TO))) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, json.dumps(port(connect(TO))).encode())
    os._exit(0)
os.wait()
print(json.dumps([sorted(port(m) // 100 for m in made), json.loads(os.read(read, 99)) // 100]))
"""
    assert program.run(code, lines) == [[410 + i for i in range(8)], 410]


def test_connected_udp_sockets_where_the_map_has_them(program: Program) -> None:
    text = f"udp job {HERE} {THERE} 0 26 41000-41099 - -\n"
    code = "made = [connect(TO, kind=socket.SOCK_DGRAM), connect(TO)]\n"
    code += "print(json.dumps([[port(m), dscp(m)] for m in made]))"
    (udp, dscp), (tcp, unmarked) = program.run(code, text)
    assert 41000 <= udp < 41100
    assert dscp == 26
    assert not 41000 <= tcp < 41100
    assert unmarked == 0


def test_lines_are_for_a_job_or_for_all(program: Program) -> None:
    text = f"tcp other {HERE} {THERE} 0 26 41000-41099 - -\n"
    assert program.run("made = [connect(TO)]\nprint(json.dumps(dscp(made[0])))", text) == 0
    text = text.replace("other", "*")
    assert program.run("made = [connect(TO)]\nprint(json.dumps(dscp(made[0])))", text) == 26


@pytest.mark.parametrize(
    "broken",
    [
        f"{TCP_LINE} 0 26 41000-41099 - -",
        f"# polyrhythm sockets 1 entries=2\n{TCP_LINE} 0 26 41000-41099 - -\n",
        f"{TCP_LINE} 0 64 41000-41099 - -\n",
        f"{TCP_LINE} 0 26 41099-41000 - -\n",
        f"{TCP_LINE} 0 26 0 - -\n",
        f"{TCP_LINE} 0 26 65536 - -\n",
        f"{TCP_LINE} 0 26 - 10000:0:1 -\n",
        f"{TCP_LINE} 0 26 - 1:0:2 -\n",
        f"{TCP_LINE} 0 26 - 1:0 -\n",
        f"{TCP_LINE} 0 26 - - - -\n",
        f"{TCP_LINE} 0 26\n",
        f"sctp job {HERE} {THERE} 0 26 - - -\n",
        f"tcp job {HERE} nowhere 0 26 - - -\n",
        f"{TCP_LINE} -1 26 - - -\n",
        f"{TCP_LINE} 0 26 " + ",".join(["41000"] * 17) + " - -\n",
        "\x00\x01\xff\xfe" * 100,
    ],
)
def test_a_map_that_is_not_whole_or_not_legal_changes_nothing(program: Program, broken: str) -> None:
    code = """
first = dscp(connect(TO))
with open(os.environ["POLYRHYTHM_SOCKET_MAP"] + ".new", "w") as file: file.write(sys.argv[1])
os.replace(file.name, os.environ["POLYRHYTHM_SOCKET_MAP"])
print(json.dumps([first, dscp(connect(TO))]))
"""
    code = code.replace("sys.argv[1]", repr(broken))
    assert program.run(code, f"{TCP_LINE} 0 30 - - -\n") == [30, 30]
    assert "refused" in program.log.read_text()


def test_a_new_map_holds_for_the_next_connection(program: Program) -> None:
    code = f"""
found = [dscp(connect(TO))]
for line in ({TCP_LINE + " 0 11 - - -"!r}, {TCP_LINE + " 0 12 - - -"!r}):
    with open(os.environ["POLYRHYTHM_SOCKET_MAP"] + ".new", "w") as file: file.write(line + chr(10))
    os.replace(file.name, os.environ["POLYRHYTHM_SOCKET_MAP"])
    found.append(dscp(connect(TO)))
os.unlink(os.environ["POLYRHYTHM_SOCKET_MAP"])
print(json.dumps([*found, dscp(connect(TO))]))
"""
    assert program.run(code) == [0, 11, 12, 0]


def test_a_map_that_could_not_be_opened_is_read_at_the_next_call(program: Program) -> None:
    """The program has no descriptor left, and then some."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
made = []
try:
    while True: made.append(socket.socket())
except OSError:
    pass
found = []
for each in made[:2]:
    each.connect(TO)
    found.append(dscp(each))
    for other in made[-4:]: other.close()
print(json.dumps(found))
"""
    assert program.run(code, f"{TCP_LINE} 0 26 41000-41099 - -\n") == [0, 26]


def test_where_no_port_fulfils_the_conditions_the_call_runs_unchanged(program: Program) -> None:
    """The third contradicts what follows from the others, so no port is tried."""
    text = f"{TCP_LINE} 0 26 - 3:0:1,5:0:0,6:0:0 -\n"
    found = program.run("made = connect(TO)\nprint(json.dumps([bool(port(made)), dscp(made)]))", text)
    assert found == [True, 26]
    assert "after 0 tries" in program.log.read_text()


def test_reports_name_the_tuple_and_an_agent_that_is_gone_or_deaf_holds_nobody(program: Program) -> None:
    text = f"{TCP_LINE} 0 26 41000-41099 - -\n"
    path = program.map.with_name("reports")
    code = "made = [connect(TO) for _ in range(100)]\nprint(json.dumps(port(made[0])))"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(path))
        port = program.run(code, text, POLYRHYTHM_SOCKET_REPORTS=str(path))
        first = agent.recv(2048).decode()
    assert first == f"tcp job ::ffff:{HERE} {port} ::ffff:{THERE} {program.port} 0 26"
    # The agent has died: its socket's file is still there.
    program.run(code, text, POLYRHYTHM_SOCKET_REPORTS=str(path))


def test_connections_of_a_named_job_that_has_not_joined_are_reported_and_left_alone(program: Program) -> None:
    path = program.map.with_name("reports")
    code = (
        "before, made = connect(TO, tos=8), [connect(TO) for _ in range(2)]\n"
        "asked = [m.getsockopt(socket.IPPROTO_IP, 51) for m in made]\n"
        "print(json.dumps([[port(m) for m in made], asked]))"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(path))
        for text in ("", f"tcp other {HERE} {THERE} 0 26 - - -\n"):
            ports, asked = program.run(code, text, POLYRHYTHM_SOCKET_REPORTS=str(path))
            assert asked == [0, 0]
            agent.recv(2048)
            for number, own in enumerate(ports, 1):
                said = f"tcp job ::ffff:{HERE} {own} ::ffff:{THERE} {program.port} {number} 0"
                assert agent.recv(2048).decode() == said
        agent.setblocking(False)
        program.run(code, POLYRHYTHM_SOCKET_REPORTS=str(path), POLYRHYTHM_SOCKET_JOB="")
        with pytest.raises(BlockingIOError):
            agent.recv(2048)


def test_refusals_and_wrong_calls_give_the_same_errors(program: Program) -> None:
    code = """
import errno
with socket.socket() as free:
    free.bind((TO[0], 0))
    closed = free.getsockname()
made = socket.socket()
found = [made.connect_ex(closed), made.connect_ex(closed), made.connect_ex(TO), made.connect_ex(TO)]
print(json.dumps([errno.errorcode.get(code, code) for code in found]))
"""
    found = program.run(code, f"{TCP_LINE} 0 26 41000-41099 - -\n")
    assert found == ["ECONNREFUSED", "ECONNREFUSED", 0, "EISCONN"]


def test_a_call_that_fails_leaves_the_options_of_the_socket(program: Program) -> None:
    code = """
PACE = 47
def options(made):
    v6 = made.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS) if made.family == socket.AF_INET6 else 0
    return [made.getsockopt(socket.IPPROTO_IP, socket.IP_TOS), v6, made.getsockopt(socket.SOL_SOCKET, PACE)]
with socket.socket() as free:
    free.bind((TO[0], 0))
    closed = free.getsockname()
found = []
for family, to, other in (
    (socket.AF_INET, closed, ("127.0.0.3", TO[1])),
    (socket.AF_INET6, ("::ffff:" + closed[0], closed[1]), ("::ffff:127.0.0.3", TO[1])),
):
    made = socket.socket(family)
    before = options(made)
    made.connect_ex(to)
    refused = options(made)
    made.connect_ex(other)
    found.append([refused == before, options(made) == before])
    made.close()
joined = connect(TO, family=socket.AF_INET)
before = options(joined)
joined.connect_ex(("127.0.0.3", TO[1]))
print(json.dumps([found, before[0] >> 2, options(joined) == before]))
"""
    text = f"{TCP_LINE} 0 26 41000-41099 - -\ntcp job {HERE} 127.0.0.3 0 - - - -\n"
    found, joined, kept = program.run(code, text, POLYRHYTHM_SOCKET_PACE="1000000")
    assert found == [[True, True], [True, True]]
    assert (joined, kept) == (26, True)


def test_an_address_that_cannot_be_read_gives_the_same_error(program: Program) -> None:
    code = """
import ctypes, errno, mmap
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.PAGESIZE
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
at = libc.mmap(None, 2 * page, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
libc.mprotect(ctypes.c_void_p(at + page), ctypes.c_size_t(page), 0)
def call(name, address, length):
    made = socket.socket()
    result = getattr(libc, name)(made.fileno(), ctypes.c_void_p(address), ctypes.c_uint32(length))
    return errno.errorcode[ctypes.get_errno()] if result else "done"
whole = at + page - 16
ctypes.memmove(whole, socket.AF_INET.to_bytes(2, "little") + TO[1].to_bytes(2, "big") + socket.inet_aton(TO[0]), 8)
found = [call(name, address, 16) for name in ("connect", "bind") for address in (1, at + page, at + page - 8, 0)]
print(json.dumps([found, call("connect", whole, 16), call("connect", whole, 28)]))
"""
    bad, whole, long = program.run(code, f"{TCP_LINE} 0 26 41000-41099 - -\n")
    assert bad == ["EFAULT"] * 8
    assert (whole, long) == ("done", "EFAULT")


def test_a_setuid_program_runs_as_without_the_shim(program: Program, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, to make a program setuid")
    source = tmp_path / "setuid.c"
    source.write_text(
        """
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
int main(int count, char **words) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(words[count - 1]))};
    socklen_t length = sizeof to;
    int made = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, "127.0.0.2", &to.sin_addr);
    if (connect(made, (struct sockaddr *)&to, length) || getsockname(made, (struct sockaddr *)&to, &length)) return 1;
    return printf("%lu %d\\n", getauxval(AT_SECURE), ntohs(to.sin_port)) < 0;
}
"""
    )
    path = tmp_path / "setuid"
    compile_c("-o", str(path), str(source), str(program.shim), f"-Wl,-rpath,{program.shim.parent}")
    for folder in (tmp_path, *tmp_path.parents, *program.shim.parents):
        if folder.is_relative_to(tmp_path.parents[-2]) and folder != tmp_path.parents[-2]:
            folder.chmod(0o755)
    program.map.write_text(f"{TCP_LINE} 0 26 41000-41099 - -\n")
    environment = {**program.environment(), "LD_PRELOAD": ""}
    seen = {}
    for mode in (0o755, 0o4755):
        path.chmod(mode)
        done = subprocess.run(
            [path, str(program.port)], env=environment, user=65534, capture_output=True, text=True, check=True
        )
        secure, port = map(int, done.stdout.split())
        seen[secure] = 41000 <= port < 41100
    if 1 not in seen:
        pytest.skip("the file system ignores setuid")
    assert seen == {0: True, 1: False}


def test_ten_thousand_connections_one_after_another(program: Program) -> None:
    """All succeed, and few of them are left to the kernel's choice."""
    code = f"""
listener = listen({THERE!r})
def serve():
    while True: listener.accept()[0].close()
threading.Thread(target=serve, daemon=True).start()
steered = 0
for _ in range(10_000):
    made = connect(({THERE!r}, port(listener)))
    assert made.getpeername()
    steered += port(made) % 2
    made.close()
print(json.dumps(steered))
"""
    program.map.write_text(f"{TCP_LINE} 0 26 - 1:0:1 -\n")
    assert program.run(code, POLYRHYTHM_SHIM_LOG="") == 10_000


def test_names_that_the_shim_replaces(program: Program) -> None:
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", program.shim], capture_output=True, text=True, check=False
    )
    if shown.returncode:
        pytest.skip("needs nm")
    names = re.findall(r" T (\w+)", shown.stdout)
    assert sorted(names) == ["accept", "accept4", "bind", "connect", "getsockname", "listen"]
