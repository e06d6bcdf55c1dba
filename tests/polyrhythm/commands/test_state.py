# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm state` where there is no file."""

import pytest

from polyrhythm.cli import main


@pytest.mark.parametrize("what", ["backup", "restore"])
def test_etcd_has_backups_of_its_own(what, capsys):
    assert main(["state", what, "copy", "--state", "etcd://10.0.0.1:2379/x"]) == 2
    said = capsys.readouterr().err
    assert "is no file; legal: an SQLite file (of etcd, `etcdctl snapshot`" in said
    assert said.count("\n") == 1
