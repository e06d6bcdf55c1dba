# SPDX-License-Identifier: Apache-2.0
"""Random updates for a switch that runs a program: most of them legal, some spoiled in one place."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from finsy.proto import p4i, p4r

from polyrhythm.bench.conformance.extern_draws import ExternDraws
from polyrhythm.bench.conformance.model import SwitchModel
from polyrhythm.bench.conformance.value_draws import UNKNOWN_ID, ValueDraws
from polyrhythm.bench.conformance.values import ranked

# Chosen: small, so that updates meet what earlier ones wrote.
_IDS = 6
# What is only ever modified; one in a hundred is inserted or deleted all the same.
_MODIFIED = {
    "counter_entry",
    "direct_counter_entry",
    "direct_meter_entry",
    "meter_entry",
    "register_entry",
    "value_set_entry",
}


class Draws:
    """Draws updates for the model's program. `ports` are those of the switch."""

    def __init__(self, rng: Random, model: SwitchModel, ports: tuple[int, ...]) -> None:
        self._rng = rng
        self._model = model
        self._ports = ports
        self._values = ValueDraws(rng, model.types)
        # A profile is written with members and groups or with action sets: most updates keep to one way.
        self._one_shots = rng.random() < 0.3
        selectors = any(profile.with_selector for profile in model.profiles.values())
        parts = 2 if self._one_shots else 15
        makers: list[tuple[Callable[[], p4r.Entity], int, bool]] = [
            (self._entry, 60, any(table.match_fields for table in model.tables.values())),
            (self._default, 6, bool(model.tables)),
            (self._member, parts, bool(model.profiles)),
            (self._group, parts, selectors),
            (self._multicast, 5, True),
            (self._session, 5, True),
        ]
        present = [(maker, weight) for maker, weight, there in makers if there]
        present += ExternDraws(self._values, model).makers
        self._makers = [maker for maker, _ in present]
        self._weights = [weight for _, weight in present]

    def update(self) -> p4r.Update:
        """One update."""
        (maker,) = self._rng.choices(self._makers, self._weights)
        entity = maker()
        kind = self._rng.choices((p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE), (5, 3, 2))[0]
        if entity.WhichOneof("entity") in _MODIFIED or entity.table_entry.is_default_action:
            kind = p4r.Update.MODIFY
        if self._rng.random() < 0.01:
            kind = self._rng.choice((p4r.Update.UNSPECIFIED, p4r.Update.INSERT, p4r.Update.DELETE))
        return p4r.Update(type=kind, entity=entity)

    def _refs(self, table: p4i.Table, barred: int) -> list[p4i.ActionRef]:
        legal = [ref for ref in table.action_refs if ref.scope != barred]
        return list(table.action_refs) if self._rng.random() < 0.03 or not legal else legal

    def _entry(self) -> p4r.Entity:
        rng, model = self._rng, self._model
        keyed = [table for table in model.tables.values() if table.match_fields]
        table = rng.choice(list(model.tables.values()) if rng.random() < 0.05 else keyed)
        message = p4r.TableEntry(table_id=table.preamble.id)
        held = list(model.entries[table.preamble.id].values())
        if held and rng.random() < 0.5:
            again = rng.choice(held)
            message.match.extend(again.match)
            message.priority = again.priority
        else:
            message.match.extend(self._values.match(table.match_fields))
            message.priority = rng.randint(1, 3) if ranked(table) else 0
        if self._values.spoiled() and rng.random() < 0.5:
            self._spoil_key(message)
        if rng.random() < 0.005:
            message.table_id = UNKNOWN_ID
        if rng.random() < 0.005:
            message.is_const = True
        if rng.random() < (0.02 if not table.is_const_table else 0.7):
            pass
        elif table.implementation_id:
            self._reference(table.implementation_id, message)
        else:
            self._act(table, p4i.ActionRef.DEFAULT_ONLY, message)
        self._extras(table, message)
        return p4r.Entity(table_entry=message)

    def _spoil_key(self, message: p4r.TableEntry) -> None:
        if self._rng.random() < 0.2:
            message.priority = 0 if message.priority else self._rng.randint(1, 9)
            return
        match = list(message.match)
        self._values.spoil_match(match)
        del message.match[:]
        message.match.extend(match)

    def _act(self, table: p4i.Table, barred: int, message: p4r.TableEntry) -> None:
        call = self._values.action(self._refs(table, barred), self._model.actions)
        message.action.action.CopyFrom(call)

    def _reference(self, profile: int, message: p4r.TableEntry) -> None:
        number = self._rng.randint(1, _IDS)
        selector = self._model.profiles[profile].with_selector
        if selector and self._rng.random() < (0.9 if self._one_shots else 0.03):
            self._action_set(self._model.profiles[profile], message)
        elif selector and self._rng.random() < 0.5:
            message.action.action_profile_group_id = number
        elif self._rng.random() < 0.97:
            message.action.action_profile_member_id = number
        else:
            message.action.action.action_id = UNKNOWN_ID

    def _action_set(self, profile: p4i.ActionProfile, message: p4r.TableEntry) -> None:
        actions = message.action.action_profile_action_set.action_profile_actions
        for _ in range(self._rng.randint(0, 3)):
            part = actions.add(weight=self._rng.randint(1, 2) if self._rng.random() > 0.03 else 0)
            part.action.CopyFrom(self._values.action(self._profile_refs(profile), self._model.actions))
            if self._rng.random() < 0.3:
                part.watch_port = self._port()

    def _profile_refs(self, profile: p4i.ActionProfile) -> list[p4i.ActionRef]:
        tables = [self._model.tables[table] for table in profile.table_ids]
        return [ref for table in tables for ref in self._refs(table, p4i.ActionRef.DEFAULT_ONLY)]

    def _extras(self, table: p4i.Table, message: p4r.TableEntry) -> None:
        rng, key = self._rng, table.preamble.id
        if rng.random() < 0.2 and not table.is_const_table:
            message.metadata = rng.randbytes(3)
        if rng.random() < (0.3 if key in self._model.direct_counters else 0.005):
            message.counter_data.packet_count = rng.randrange(100)
            message.counter_data.byte_count = rng.randrange(1000)
        if rng.random() < 0.1 and not table.is_const_table:
            message.controller_metadata = rng.randrange(3)
        if rng.random() < (0.3 if key in self._model.direct_meters else 0.005):
            meter = self._model.direct_meters.get(key)
            message.meter_config.CopyFrom(self._values.rates(0 if meter is None else meter.spec.type))
        ages = table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL and not table.is_const_table
        if rng.random() < (0.3 if ages else 0.002) and not table.is_const_table:
            message.idle_timeout_ns = 3_600_000_000_000 + rng.randrange(1000)

    def _default(self) -> p4r.Entity:
        rng = self._rng
        table = rng.choice(list(self._model.tables.values()))
        message = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
        # The default entry of a table with an action profile is NoAction for ever (9.1.3).
        if rng.random() < 0.8 and not table.implementation_id:
            self._act(table, p4i.ActionRef.TABLE_ONLY, message)
        if message.HasField("action") and rng.random() < 0.3:
            message.metadata = rng.randbytes(2)
        if rng.random() < 0.02:
            message.priority = 1
        return p4r.Entity(table_entry=message)

    def _profile(self) -> p4i.ActionProfile:
        return self._rng.choice(list(self._model.profiles.values()))

    def _member(self) -> p4r.Entity:
        profile = self._profile()
        message = p4r.ActionProfileMember(action_profile_id=profile.preamble.id)
        message.member_id = self._rng.randint(0 if self._values.spoiled() else 1, _IDS)
        message.action.CopyFrom(self._values.action(self._profile_refs(profile), self._model.actions))
        return p4r.Entity(action_profile_member=message)

    def _group(self) -> p4r.Entity:
        rng, profile = self._rng, self._profile()
        message = p4r.ActionProfileGroup(action_profile_id=profile.preamble.id)
        message.group_id = rng.randint(0 if self._values.spoiled() else 1, _IDS)
        message.max_size = min(profile.max_group_size, rng.randint(1, 8)) if profile.max_group_size else 0
        held = [member for owner, member in self._model.members if owner == profile.preamble.id]
        for member in rng.sample(held, rng.randint(0, min(3, len(held)))):
            part = message.members.add(member_id=member, weight=rng.randint(1, 2))
            if rng.random() < 0.3:
                part.watch_port = self._port()
        if self._values.spoiled():
            message.members.add(member_id=rng.randint(1, _IDS), weight=rng.randint(-1, 2))
        return p4r.Entity(action_profile_group=message)

    def _multicast(self) -> p4r.Entity:
        message = p4r.MulticastGroupEntry(multicast_group_id=self._number(1 << 16))
        self._replicate(message)
        message.metadata = self._rng.randbytes(self._rng.randrange(3))
        engine = p4r.PacketReplicationEngineEntry(multicast_group_entry=message)
        return p4r.Entity(packet_replication_engine_entry=engine)

    def _session(self) -> p4r.Entity:
        message = p4r.CloneSessionEntry(session_id=self._number(1 << 15))
        self._replicate(message)
        if self._rng.random() < 0.01:
            message.class_of_service = 1
        message.packet_length_bytes = self._rng.choice((0, 64))
        engine = p4r.PacketReplicationEngineEntry(clone_session_entry=message)
        return p4r.Entity(packet_replication_engine_entry=engine)

    def _number(self, beyond: int) -> int:
        number = self._rng.randint(0, _IDS)
        return beyond + number if self._rng.random() < 0.03 else number

    def _replicate(self, message: p4r.MulticastGroupEntry | p4r.CloneSessionEntry) -> None:
        rng = self._rng
        for _ in range(rng.randint(1, 3)):
            instance = rng.randrange(3) if rng.random() > 0.02 else 1 << 16
            port = rng.choice(self._ports) if rng.random() > 0.02 else 0
            replica = message.replicas.add(instance=instance)
            if rng.random() < 0.5:
                replica.egress_port = port
            else:
                replica.port = self._padded(port)
            if rng.random() < (0.2 if isinstance(message, p4r.MulticastGroupEntry) else 0.01):
                replica.backup_replicas.add(port=self._port(), instance=rng.randrange(3))

    def _port(self) -> bytes:
        return self._padded(self._rng.choice(self._ports))

    def _padded(self, port: int) -> bytes:
        return port.to_bytes(1 + (self._rng.random() < 0.1), "big")
