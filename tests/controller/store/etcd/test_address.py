# SPDX-License-Identifier: Apache-2.0
"""The address of etcd on the command line."""

import pytest

from controller.store.etcd.address import AddressOfEtcdError, EtcdAddress, parse_address


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("etcd://10.0.0.1:2379", EtcdAddress(("10.0.0.1:2379",))),
        ("etcd://a:1,b:2,[::1]:3/gpu/west/", EtcdAddress(("a:1", "b:2", "[::1]:3"), "gpu/west")),
        ("etcd://a:1/x?epoch=3", EtcdAddress(("a:1",), "x", 3)),
    ],
)
def test_an_address_is_read(text, meant):
    assert parse_address(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "etcd://",
        "etcd:/a:1",
        "etcd://a",
        "etcd://a:0",
        "etcd://a:65536",
        "etcd://a:1,",
        "etcd://a:1,a:1",
        "etcd://user:secret@a:1",
        "etcd://a:1/x?epoch=0",
        "etcd://a:1/x?epoch=x",
        "etcd://a:1/x?epok=1",
        "etcd://a:1/x?epoch=1&epoch=2",
        "etcd://a:1/x#y",
    ],
)
def test_a_wrong_address_is_refused(text):
    with pytest.raises(AddressOfEtcdError, match="legal:"):
        parse_address(text)


def test_keys_of_two_fabrics_are_apart():
    assert parse_address("etcd://a:1/x").key("leader") == b"x/leader"
