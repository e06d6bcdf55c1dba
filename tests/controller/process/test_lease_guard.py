# SPDX-License-Identifier: Apache-2.0
"""The guard of the lease: it gives back what its parent held when that ended, and nothing else."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from control_rig import eventually
from etcd_rig import Cluster, needs_etcd

from controller.process.lease_guard import LeaseGuard
from controller.store.etcd.members import Etcd

pytestmark = needs_etcd
LONG_S = 600


def ignores(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("released", [False, True])
def test_a_lease_goes_with_its_holder_unless_it_was_released(cluster: Cluster, released: bool) -> None:
    etcd = Etcd(cluster.address())
    lease, other = etcd.grant(LONG_S, 5.0), etcd.grant(LONG_S, 5.0)
    guard = LeaseGuard(cluster.address())
    guard.hold(lease)
    # The signals that end a controller may reach its children too.
    eventually(lambda: ignores(guard._process.pid, signal.SIGTERM), "the guard has started")
    guard._process.send_signal(signal.SIGTERM)
    if released:
        guard.release()
    stdin = guard._process.stdin
    assert stdin is not None
    # What the system does when the holder dies.
    stdin.close()
    assert guard._process.wait(60) == 0
    assert etcd.renew(lease, 5.0) is released
    assert etcd.renew(other, 5.0)
    guard.close()
    etcd.close()


def test_the_guard_tries_again_while_etcd_does_not_answer(cluster: Cluster) -> None:
    etcd = Etcd(cluster.address())
    lease = etcd.grant(LONG_S, 5.0)
    guard = LeaseGuard(cluster.address())
    guard.hold(lease)
    cluster.end(signal.SIGKILL)
    stdin = guard._process.stdin
    assert stdin is not None
    stdin.close()
    cluster.start()
    assert guard._process.wait(60) == 0
    assert not etcd.renew(lease, 5.0)
    guard.close()
    etcd.close()


def test_a_guard_that_died_does_not_harm(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    guard = LeaseGuard(cluster.address())
    guard._process.kill()
    guard._process.wait()
    guard.hold(1)
    guard.release()
    guard.close()
    eventually(lambda: "the guard of the lease is gone" in caplog.text, "it is said")
