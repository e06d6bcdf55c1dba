# SPDX-License-Identifier: Apache-2.0
"""A primary client of a switch that runs programs/every_entity.p4, and that program's entities in text.

p4c 1.2.5 made the files beside the program.
"""

from functools import partial
from pathlib import Path

import grpc
from control_rig import eventually
from finsy.proto import p4i, p4r
from google.protobuf import text_format

PROGRAMS = Path(__file__).parents[1] / "data" / "p4runtime"


def every_entity_config():
    """The program as P4Runtime takes it."""
    return config_of("every_entity")


def config_of(program):
    """A program of programs/ as P4Runtime takes it."""
    info = text_format.Parse((PROGRAMS / f"{program}.p4info.txtpb").read_text(), p4i.P4Info())
    device = (PROGRAMS / f"{program}.json").read_bytes()
    return p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=device)


class Bench:
    """A primary client of a switch with the program, and its objects' ids by short name."""

    def __init__(self, rig, client, config, errors):
        self.rig, self.client, self._errors = rig, client, errors
        for port in (3, 4):
            rig.switch.add_port(port, rate_bps=None, transmit=partial(rig.transmit, port))
        info = config.p4info
        groups = (info.tables, info.actions, info.action_profiles, info.counters, info.meters)
        groups += (info.value_sets, info.digests, info.registers)
        self.ids = {item.preamble.name.split(".")[-1]: item.preamble.id for group in groups for item in group}
        client.arbitrate(1)
        client.set_config(config)
        # The data plane takes a pipeline when it is free; until then all counts are zero.
        eventually(lambda: rig.switch.program, "the program runs")

    def entity(self, text):
        """An entity in text, with `$name` for ids."""
        for name, number in sorted(self.ids.items(), key=lambda item: -len(item[0])):
            text = text.replace(f"${name}", str(number))
        return text_format.Parse(text, p4r.Entity())

    def write(self, kind, text):
        """The code of an update: OK, or that of its error."""
        update = p4r.Update(type=p4r.Update.Type.Value(kind), entity=self.entity(text))
        try:
            self.client.write(update)
        except grpc.RpcError as error:
            return self._errors(error)[0][0]
        return "OK"

    def read(self, text):
        try:
            return self.client.read(self.entity(text))
        except grpc.RpcError as error:
            return error.code().name

    def send(self, *frame, port=1):
        """Frame bytes kind, number, rid, colour into a port; gives (port, frame) of all that comes out."""
        self.rig.on_data_plane(lambda: self.rig.switch.receive(port, bytes((*frame, 0, 0, 0))[:4]))
        out = []
        while not self.rig.sent.empty():
            out.append(self.rig.sent.get())
        return out

    def ports(self, *frame, port=1):
        return [out for out, _ in self.send(*frame, port=port)]


def send_to(port):
    return f'action_id: $send params {{ param_id: 1 value: "\\x{port:02x}" }}'


def member(number, port, profile="choice"):
    return (
        f"action_profile_member {{ action_profile_id: ${profile} member_id: {number} "
        f"action {{ {send_to(port)} }} }}"
    )


def group(number, *members, size=0):
    listed = " ".join(f"members {{ {text} }}" for text in members)
    return (
        f"action_profile_group {{ action_profile_id: $choice group_id: {number} max_size: {size} {listed} }}"
    )


def selected(number, action):
    match = f'match {{ field_id: 1 exact {{ value: "\\x{number:02x}" }} }}'
    return f"table_entry {{ table_id: $selected {match} action {{ {action} }} }}"


def aged(number, port=2, rest=""):
    return (
        f'table_entry {{ table_id: $aged match {{ field_id: 1 exact {{ value: "\\x{number:02x}" }} }} '
        f'action {{ action {{ action_id: $metered params {{ param_id: 1 value: "\\x{port:02x}" }} }} }} {rest} }}'
    )


def meter(index, config):
    return f"meter_entry {{ meter_id: $index_meters index {{ index: {index} }} {config} }}"


def digest(config=""):
    return f"digest_entry {{ digest_id: $learned_t config {{ {config} }} }}"
