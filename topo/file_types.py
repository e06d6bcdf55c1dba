# SPDX-License-Identifier: Apache-2.0
"""The keys of a topology file: for each its meaning, unit and legal values.

The same types read the files and give docs/schemas/topology.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from polyrhythm_files import InvalidValueError, Section, finite
from topo.addresses import Families
from topo.graph import HASH_BITS, OUR_HASH, UNKNOWN_HASH, HashSpec, Tier

MAX_NODES = 200_000
"""Entries of a list (chosen: ten times the largest published GPU cluster)."""
SLICE_BITS = 8
"""Bits of the hash that a tier of switches uses: those of our P4 program."""

Text = Annotated[str, Meta(min_length=1, extra={"legal": "text that is not empty"})]
Gbps = Annotated[float, finite(above=0, most=10_000)]
Count = Annotated[int, Meta(ge=1, le=MAX_NODES)]
Positive = Annotated[int, Meta(ge=1)]
TierName = Literal["leaf", "spine", "core"]


class HashFile(Section, frozen=True, kw_only=True):
    """The switches' ECMP hash, of which each tier uses its own slice of 8 bits."""

    algorithm: Literal["crc32", "crc16"]
    slices: Annotated[
        tuple[int, int, int],
        Meta(description="the lowest bit of the slice of leaves, of spines and of cores"),
    ]

    def __post_init__(self) -> None:
        last = HASH_BITS[self.algorithm] - SLICE_BITS
        for i, bit in enumerate(self.slices):
            if not 0 <= bit <= last:
                raise InvalidValueError(
                    ("slices", i), f"{bit} is wrong; legal: a whole number from 0 to {last}"
                )


Hash = Annotated[
    Literal["unknown"] | HashFile | None,
    Meta(description="without it, the hash of our P4 program; unknown: source ports have to be learned"),
]


AnyOrder = Meta(
    description="the NIC takes packets in any order and repeats single ones, so that switches may spray "
    "its packets"
)


class TopologyKind(Section, frozen=True, kw_only=True, tag_field="kind"):
    """What all files with a `kind` have."""

    name: Text | None = None
    hash: Hash = None
    addresses: Annotated[
        Families, Meta(description="families of the generated addresses; jobs use the first")
    ] = "ipv4"
    any_order: Annotated[
        bool,
        Meta(
            description="all NICs take packets in any order and repeat single ones, so that switches may "
            "spray their packets"
        ),
    ] = False


class LeafSpineFile(TopologyKind, frozen=True, kw_only=True, tag="leaf_spine"):
    """A generated two-tier Clos: every leaf has one cable to every spine."""

    leaves: Count
    spines: Annotated[int, Meta(ge=0, le=MAX_NODES)]
    hosts_per_leaf: Count
    host_gbps: Gbps
    fabric_gbps: Gbps


class ThreeTierFile(TopologyKind, frozen=True, kw_only=True, tag="three_tier"):
    """A generated three-tier Clos.

    In a pod every leaf has a cable to every spine. Spine j of every pod has a cable to each core of group j.
    """

    pods: Count
    leaves_per_pod: Count
    spines_per_pod: Count
    cores_per_spine: Count
    hosts_per_leaf: Count
    host_gbps: Gbps
    fabric_gbps: Gbps


class RailFile(TopologyKind, frozen=True, kw_only=True, tag="rail"):
    """A generated rail-optimised leaf-spine: NIC r of every server is connected to leaf r of its group."""

    groups: Count
    rails: Count
    spines: Annotated[int, Meta(ge=0, le=MAX_NODES)]
    servers_per_group: Count
    host_gbps: Gbps
    fabric_gbps: Gbps


OwnFamilies = Annotated[Families | None, Meta(description="of this host; without it, those of the fabric")]


class SwitchRow(Section, frozen=True, kw_only=True):
    """A switch of an explicit fabric."""

    name: Text
    tier: TierName


class HostRow(Section, frozen=True, kw_only=True):
    """A host of an explicit fabric, with one NIC."""

    name: Text
    leaf: Text
    gbps: Gbps
    addresses: OwnFamilies = None
    any_order: Annotated[bool, AnyOrder] = False


class LinkRow(Section, frozen=True, kw_only=True):
    """A cable between two switches of an explicit fabric."""

    a: Text
    b: Text
    gbps: Gbps


class ExplicitFile(TopologyKind, frozen=True, kw_only=True, tag="explicit"):
    """A fabric that is written out node by node; addresses and ports follow the order of the lists."""

    switches: Annotated[tuple[SwitchRow, ...], Meta(max_length=MAX_NODES)]
    hosts: Annotated[tuple[HostRow, ...], Meta(max_length=MAX_NODES)]
    links: Annotated[tuple[LinkRow, ...], Meta(max_length=MAX_NODES)]


class WholeHost(Section, frozen=True, kw_only=True):
    """A NIC of a whole fabric, as `topo.graph.Host`."""

    name: Text
    ip: Text
    mac: Text
    leaf: Text
    leaf_port: Positive
    rate_bps: Positive
    server: Text | None = None
    other_ips: Annotated[
        tuple[Text, ...] | None,
        Meta(description="further addresses, that switches forward to but no job uses"),
    ] = None
    any_order: Annotated[bool, AnyOrder] = False


class WholeSwitch(Section, frozen=True, kw_only=True):
    """A switch of a whole fabric, as `topo.graph.Switch`."""

    name: Text
    tier: TierName
    device_id: Positive
    mac: Text


class WholeLink(Section, frozen=True, kw_only=True):
    """A cable of a whole fabric, as `topo.graph.Link`."""

    a: Text
    a_port: Positive
    b: Text
    b_port: Positive
    rate_bps: Positive


class WholeTopology(Section, frozen=True, kw_only=True):
    """A whole fabric with its addresses and ports, as `topology_to_json` writes it."""

    name: Text
    hosts: tuple[WholeHost, ...]
    switches: tuple[WholeSwitch, ...]
    links: tuple[WholeLink, ...]
    prefixes: Annotated[Mapping[str, str], Meta(description="each leaf's IPv4 or IPv6 prefix in CIDR form")]
    hash: Hash = None
    other_prefixes: Annotated[
        Mapping[str, tuple[str, ...]] | None, Meta(description="further prefixes of a leaf, of either family")
    ] = None


class TutorialTopology(Struct, frozen=True, kw_only=True):
    """The topology.json of p4lang's tutorials; it may have further keys, which are not used."""

    hosts: Annotated[
        Mapping[str, Any], Meta(min_length=1, max_length=4096, description="by name; `mac` is used, if given")
    ]
    switches: Annotated[Mapping[str, Any], Meta(min_length=1, max_length=4096, description="by name")]
    links: Annotated[
        tuple[Annotated[tuple[Any, ...], Meta(min_length=2, max_length=4)], ...],
        Meta(description="[end, end, latency, bandwidth in Mbit/s] each, the last two optional"),
    ]


GENERATED = LeafSpineFile | ThreeTierFile | RailFile
KINDS = LeafSpineFile | ThreeTierFile | RailFile | ExplicitFile
TOPOLOGY_TYPES = (LeafSpineFile, ThreeTierFile, RailFile, ExplicitFile, WholeTopology, TutorialTopology)
"""All forms of a topology file, but GraphML."""


def hash_of(given: HashFile | str | None) -> HashSpec:
    """The switches' hash that a file describes."""
    if given is None:
        return OUR_HASH
    if isinstance(given, HashFile):
        return HashSpec(given.algorithm, given.slices)
    return HashSpec(UNKNOWN_HASH)


def tier_of(name: TierName) -> Tier:
    """The tier of a switch."""
    return Tier(name)
