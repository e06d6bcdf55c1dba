# SPDX-License-Identifier: Apache-2.0
"""The jobs of the experiment, and how their programs are started."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from polyrhythm.paper.real_training.cluster import Rank, TrainingCluster

PROGRAMS = Path(__file__).parent / "programs"
RENDEZVOUS_PORT = 29500
"""PyTorch's default."""
MPI_PORTS = range(20_000, 20_100)
"""Where ranks of Open MPI listen for data, which tells it from what its daemons say."""
_INPUTS, _OUTPUTS = 256, 128
"""As in `programs/ddp.py`."""
_HEADERS = 4144 / 4210
"""The part of a full frame that is payload: TCP with time stamps, IPv4 and Ethernet."""


@dataclass(frozen=True, slots=True)
class ProgramJob:
    """A job with one rank on each of `hosts`. A step is a pause of `compute_ms`, which stands for the GPU,
    and an all-reduce of the gradients of a model with a hidden layer of `width`.

    `reports`: the program has the three lines of `polyrhythm-job`. `mpi`: it is Open MPI instead of PyTorch,
    with an all-reduce of the same size.
    """

    name: str
    hosts: tuple[str, ...]
    compute_ms: float
    width: int
    reports: bool = False
    mpi: bool = False

    @property
    def gradient_bytes(self) -> int:
        """The size of the gradients, which are 32-bit floats."""
        return 4 * (_INPUTS * self.width + self.width + self.width * _OUTPUTS + _OUTPUTS)

    @property
    def sent_bytes(self) -> int:
        """What each rank sends in a step: a ring all-reduce."""
        ranks = len(self.hosts)
        return 2 * (ranks - 1) * self.gradient_bytes // ranks

    def up_ms(self, rate_bps: int) -> float:
        """How long the all-reduce takes alone on links of this rate."""
        return 8e3 * self.sent_bytes / (rate_bps * _HEADERS)

    def carries_data(self, own: int, other: int) -> bool:
        """Whether a connection between two ports carries the data of the all-reduces."""
        if self.mpi:
            return own in MPI_PORTS or other in MPI_PORTS
        return RENDEZVOUS_PORT not in (own, other)


def start(cluster: TrainingCluster, job: ProgramJob, steps: int, *, steered: bool) -> list[Rank]:
    """Start the ranks of a job; the first one's lines are the job's. With `steered` they run under the socket
    shim and talk to their agents, otherwise they know of neither. Those that report then begin with a warm-up
    (`Rank.end_warm_up`).
    """
    steering = {host: cluster.steering(job.name, host) if steered else {} for host in job.hosts}
    if job.mpi:
        return [_start_mpi(cluster, job, steps, steering)]
    argv = [
        sys.executable, str(PROGRAMS / "ddp.py"), f"--steps={steps}", f"--compute-ms={job.compute_ms}",
        f"--width={job.width}", *(("--job", job.name, "--hosts", *job.hosts) if job.reports else ()),
        *(("--warm-up",) if job.reports and steered else ()),
    ]  # fmt: skip
    return [
        cluster.rank(
            host,
            argv,
            {
                "MASTER_ADDR": cluster.topology.host[job.hosts[0]].ip,
                "MASTER_PORT": str(RENDEZVOUS_PORT),
                "RANK": str(rank),
                "WORLD_SIZE": str(len(job.hosts)),
                "GLOO_SOCKET_IFNAME": cluster.interface,
                "OMP_NUM_THREADS": "1",
                # An agent of this machine is none of the experiment's.
                "POLYRHYTHM_AGENT": str(cluster.folder / "no-agent"),
                **steering[host],
            },
        )
        for rank, host in enumerate(job.hosts)
    ]


def _start_mpi(
    cluster: TrainingCluster, job: ProgramJob, steps: int, steering: Mapping[str, Mapping[str, str]]
) -> Rank:
    """Start a job of Open MPI on its first host. Its daemon enters the namespaces of the others instead of
    logging in there."""
    ips = {host: cluster.topology.host[host].ip for host in job.hosts}
    login = cluster.folder / f"login-{job.name}"
    cases = "".join(f"{ips[host]}) pid={cluster.network.pid(host)}; name={host} ;;\n" for host in job.hosts)
    # Each host needs a name of its own: Open MPI would take ranks of one name for neighbours in one memory.
    login.write_text(
        f'#!/bin/sh\ncase "$1" in\n{cases}*) exit 1 ;;\nesac\nshift\n'
        'exec mnexec -a $pid unshare --uts sh -c "hostname $name; $*"\n',
        encoding="utf-8",
    )
    login.chmod(0o700)
    settings = {
        "plm_rsh_agent": str(login), "btl": "tcp,self", "pml": "ob1", "oob_tcp_if_include": cluster.interface,
        "btl_tcp_if_include": cluster.interface, "btl_tcp_port_min_v4": str(MPI_PORTS.start),
        "btl_tcp_port_range_v4": str(len(MPI_PORTS)),
    }  # fmt: skip
    program = [
        sys.executable, str(PROGRAMS / "mpi_allreduce.py"), f"--steps={steps}",
        f"--compute-ms={job.compute_ms}", f"--values={job.gradient_bytes // 4}",
    ]  # fmt: skip
    ranks: list[str] = []
    for host in job.hosts:
        variables = [f"{key}={value}" for key, value in steering[host].items()]
        ranks += [*([":"] if ranks else []), "--host", ips[host], "-np", "1", "env", *variables, *program]
    options = [word for key, value in settings.items() for word in ("--mca", key, value)]
    argv = ["mpirun", "--allow-run-as-root", *options, *ranks]
    inside = ["unshare", "--uts", "sh", "-c", f"hostname {job.hosts[0]}; exec {shlex.join(argv)}"]
    return cluster.rank(
        job.hosts[0], inside, {"TMPDIR": str(cluster.folder), "HOME": os.environ.get("HOME", "/")}
    )
