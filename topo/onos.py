# SPDX-License-Identifier: Apache-2.0
"""An ONOS network configuration (netcfg.json) as a fabric.

https://wiki.onosproject.org/display/ONOS/The+Network+Configuration+Service: devices, links and hosts by their
ONOS ids. Hosts name the ports that they are connected to (`basic.locations`); links name two ports, in one
direction or both. ONOS finds links by LLDP, so many files have none: such a file describes no fabric here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any
from urllib.parse import parse_qs, urlsplit

from polyrhythm_files import Document, InvalidValueError, Loc, shown
from topo.addresses import canonical_address, is_ipv6
from topo.graph import Host, Link, Topology
from topo.wiring import Nic, Ports, inferred_tiers, wired

_PORT = re.compile(r"(?P<device>.+)/(?:\[[^\[\]]*\]\((?P<numbered>\d{1,9})\)|(?P<number>\d{1,9}))")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_LINK_LEGAL = "legal: DEVICE/PORT-DEVICE/PORT with devices of the file"


def is_onos(value: object) -> bool:
    """Whether the value of a file looks like a netcfg.json."""
    return isinstance(value, Mapping) and isinstance(value.get("devices"), Mapping) and "kind" not in value


def onos_topology(document: Document, name: str, *, host_bps: int, fabric_bps: int) -> Topology:
    """The fabric of a netcfg.json. The rates are those of cables without a bandwidth (which is in Mbit/s).

    Raises:
        ConfigError: devices, links or hosts that make no fabric; with file and line.
    """
    with document.checks():
        return _fabric(document.value, name, host_bps, fabric_bps)


def _fabric(value: Mapping[str, Any], name: str, host_bps: int, fabric_bps: int) -> Topology:
    devices = _table(value, "devices")
    names = {device: _name(device, settings, ("devices", device)) for device, settings in devices.items()}
    doubled = next((d for d, n in names.items() if list(names.values()).count(n) > 1), None)
    if doubled is not None:
        raise InvalidValueError(("devices", doubled), f"two devices are named {names[doubled]}")
    ports = Ports()
    nics, addresses = _hosts(value, names, ports, host_bps)
    cables = list(_cables(value, names, ports, fabric_bps))
    if not cables and len(devices) > 1:
        raise InvalidValueError(
            ("links",) if "links" in value else (),
            "no links between devices (ONOS finds them by LLDP); legal: `links` with DEVICE/PORT-DEVICE/PORT",
        )
    switches: dict[str, Loc] = {names[device]: ("devices", device) for device in devices}
    leaves = dict.fromkeys(nic.leaf for nic in nics)
    for device, settings in devices.items():
        if _part(settings, "segmentrouting").get("isEdgeRouter") is True:
            leaves[names[device]] = None
    tiers = inferred_tiers(switches, leaves, [(k.a, k.b) for k in cables])
    found = wired(name, tiers, nics, cables, _device_ids(devices, names))
    if not all(ips for ips, _ in addresses.values()):
        return found
    return _addressed(found, addresses, _subnets(value, names))


def _hosts(
    value: Mapping[str, Any], names: Mapping[str, str], ports: Ports, host_bps: int
) -> tuple[list[Nic], dict[str, tuple[list[str], Loc]]]:
    """The NICs of all hosts, and the addresses of each NIC."""
    nics: list[Nic] = []
    addresses: dict[str, tuple[list[str], Loc]] = {}
    for key, settings in _table(value, "hosts").items():
        loc: Loc = ("hosts", key)
        mac = key.partition("/")[0]
        if not _MAC.fullmatch(mac):
            raise InvalidValueError(loc, f"{shown(key)} is no host; legal: MAC/VLAN")
        basic = _part(settings, "basic")
        locations = basic.get("locations") or ([basic["location"]] if "location" in basic else [])
        if not isinstance(locations, list) or len(locations) != 1:
            raise InvalidValueError(
                (*loc, "basic"), f"{shown(locations)} is wrong; legal: `locations` with one DEVICE/PORT"
            )
        where = (*loc, "basic", "locations" if "locations" in basic else "location")
        device, port = _port(locations[0], where, names)
        name = str(basic.get("name") or mac.lower())
        if name in addresses or name in names.values():
            raise InvalidValueError(loc, f"another node is named {name}; legal: a name of its own")
        ports.take(names[device], port, where)
        nics.append(Nic(name, names[device], port, host_bps, mac=mac, loc=loc))
        ips = basic.get("ips") or []
        if not isinstance(ips, list) or not all(isinstance(ip, str) for ip in ips):
            raise InvalidValueError(
                (*loc, "basic", "ips"), f"{shown(ips)} is wrong; legal: a list of addresses"
            )
        try:
            addresses[name] = [canonical_address(ip) for ip in ips], (*loc, "basic", "ips")
        except ValueError as error:
            raise InvalidValueError((*loc, "basic", "ips"), str(error)) from None
    if not nics:
        raise InvalidValueError((), "no hosts; legal: `hosts` with the ports that they are connected to")
    return nics, addresses


def _cables(
    value: Mapping[str, Any], names: Mapping[str, str], ports: Ports, fabric_bps: int
) -> Iterator[Link]:
    """Each cable once, whether the file has one direction or both."""
    seen: set[frozenset[tuple[str, int]]] = set()
    for key, settings in _table(value, "links").items():
        loc: Loc = ("links", key)
        ends = _link_ends(key, loc, names)
        basic = _part(settings, "basic")
        if basic.get("isAllowed") is False or frozenset(ends) in seen:
            continue
        seen.add(frozenset(ends))
        (a, a_port), (b, b_port) = ends
        if a == b:
            raise InvalidValueError(loc, "joins a device to itself; legal: two different devices")
        for device, port in ends:
            ports.take(names[device], port, loc)
        mbps = basic.get("bandwidth", fabric_bps / 1e6)
        if isinstance(mbps, bool) or not isinstance(mbps, int | float) or not 0 < mbps <= 10_000_000:
            where = (*loc, "basic", "bandwidth")
            raise InvalidValueError(where, f"{shown(mbps)} is wrong; legal: Mbit/s above 0, at most 10000000")
        yield Link(names[a], a_port, names[b], b_port, max(1, round(mbps * 1e6)))


def _link_ends(key: str, loc: Loc, names: Mapping[str, str]) -> tuple[tuple[str, int], tuple[str, int]]:
    """Both ends of a link's id. Device ids may contain hyphens too."""
    for i in (i for i, c in enumerate(key) if c == "-"):
        first, second = _PORT.fullmatch(key[:i]), _PORT.fullmatch(key[i + 1 :])
        if first and second and first["device"] in names and second["device"] in names:
            return (first["device"], _number(first)), (second["device"], _number(second))
    raise InvalidValueError(loc, f"{shown(key)} is no link; {_LINK_LEGAL}")


def _port(text: object, loc: Loc, names: Mapping[str, str]) -> tuple[str, int]:
    matched = _PORT.fullmatch(text) if isinstance(text, str) else None
    if matched is None or matched["device"] not in names or not _number(matched):
        raise InvalidValueError(loc, f"{shown(text)} is wrong; legal: DEVICE/PORT with a device of the file")
    return matched["device"], _number(matched)


def _number(matched: re.Match[str]) -> int:
    return int(matched["numbered"] or matched["number"])


def _device_ids(devices: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, int] | None:
    """The P4Runtime device ids in the management addresses; None if some have none."""
    found = {}
    for device, settings in devices.items():
        address = _part(settings, "basic").get("managementAddress")
        given = parse_qs(urlsplit(address).query).get("device_id", []) if isinstance(address, str) else []
        number = given[0] if len(given) == 1 else ""
        if not number.isdecimal() or len(number) > 20 or not 0 < int(number) < 1 << 64:
            return None
        found[names[device]] = int(number)
    return found


def _subnets(value: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, list[str]]:
    """The prefixes of the interfaces of each switch's ports."""
    found: dict[str, list[str]] = {}
    for key, settings in _table(value, "ports").items():
        device, _ = _port(key, ("ports", key), names)
        loc: Loc = ("ports", key, "interfaces")
        for interface in _listed(settings, "interfaces", loc):
            for text in _listed(interface, "ips", loc):
                try:
                    prefix = str(ip_interface(text).network)
                except ValueError as error:
                    raise InvalidValueError(loc, f"{error}; legal: an address with its prefix") from None
                if prefix not in found.setdefault(names[device], []):
                    found[names[device]].append(prefix)
    return found


def _addressed(
    topology: Topology, addresses: Mapping[str, tuple[list[str], Loc]], subnets: Mapping[str, list[str]]
) -> Topology:
    """The fabric with the addresses of its hosts in the file."""
    hosts: list[Host] = []
    prefixes: dict[str, list[str]] = {leaf: [] for leaf in topology.prefixes}
    owner: dict[str, str] = {}
    for host in topology.hosts:
        ips, loc = addresses[host.name]
        for ip in ips:
            if ip in owner:
                raise InvalidValueError(loc, f"{ip} is also the address of {owner[ip]}; legal: of one host")
            owner[ip] = host.name
            own = subnets.get(host.leaf, [])
            inside = next((p for p in own if ip_address(ip) in ip_network(p)), None)
            # Without an interface of the port, the usual sizes of a subnet.
            prefix = inside or str(ip_network(f"{ip}/{64 if is_ipv6(ip) else 24}", strict=False))
            if prefix not in prefixes[host.leaf]:
                prefixes[host.leaf].append(prefix)
        hosts.append(replace(host, ip=ips[0], other_ips=tuple(ips[1:])))
    whole = [(ip_network(p), leaf) for leaf, own in prefixes.items() for p in own]
    for i, (subnet, leaf) in enumerate(whole):
        for other, other_leaf in whole[:i]:
            if leaf != other_leaf and subnet.version == other.version and subnet.overlaps(other):
                raise InvalidValueError(
                    ("hosts",),
                    f"{leaf} has {subnet} and {other_leaf} has {other}; legal: prefixes of one leaf each",
                )
    first = {leaf: own[0] for leaf, own in prefixes.items() if own}
    rest = {leaf: tuple(own[1:]) for leaf, own in prefixes.items() if own[1:]}
    return replace(topology, hosts=tuple(hosts), prefixes=first, other_prefixes=rest)


def _name(device: str, settings: object, loc: Loc) -> str:
    """The name of a device: its own, or its id without the scheme."""
    if not isinstance(settings, Mapping):
        raise InvalidValueError(loc, f"{shown(settings)} is wrong; legal: a table")
    name = _part(settings, "basic").get("name")
    return str(name) if name else device.removeprefix("device:")


def _listed(settings: object, key: str, loc: Loc) -> list[Any]:
    """The list of a key, which may be missing."""
    found = settings.get(key) if isinstance(settings, Mapping) else None
    if found is not None and not isinstance(found, list):
        raise InvalidValueError(loc, f"{key}: {shown(found)} is wrong; legal: a list")
    return found or []


def _part(settings: object, key: str) -> Mapping[str, Any]:
    part = settings.get(key) if isinstance(settings, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key, {})
    if not isinstance(found, Mapping):
        raise InvalidValueError((key,), f"{shown(found)} is wrong; legal: a table by id")
    return found
