# SPDX-License-Identifier: Apache-2.0
"""Random updates for a switch that runs a program: most of them legal, some spoiled in one place."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from finsy.proto import p4i, p4r

from polyrhythm.bench.conformance.model import SwitchModel
from polyrhythm.bench.conformance.values import kind_of, ranked

# Chosen: small, so that updates meet what earlier ones wrote.
_IDS = 6
_VALUES = 5
_SPOILED = 0.15
_UNKNOWN_ID = 0x00ABCDEF


class Draws:
    """Draws updates for the model's program. `ports` are those of the switch."""

    def __init__(self, rng: Random, model: SwitchModel, ports: tuple[int, ...]) -> None:
        self._rng = rng
        self._model = model
        self._ports = ports
        makers: list[tuple[Callable[[], p4r.Entity], int, bool]] = [
            (self._entry, 60, any(table.match_fields for table in model.tables.values())),
            (self._default, 6, bool(model.tables)),
            (self._member, 15, bool(model.profiles)),
            (self._group, 15, any(profile.with_selector for profile in model.profiles.values())),
            (self._counter, 10, bool(model.counters)),
            (self._multicast, 5, True),
            (self._session, 5, True),
        ]
        self._makers = [maker for maker, _, there in makers if there]
        self._weights = [weight for _, weight, there in makers if there]

    def update(self) -> p4r.Update:
        """One update."""
        (maker,) = self._rng.choices(self._makers, self._weights)
        entity = maker()
        kind = self._rng.choices((p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE), (5, 3, 2))[0]
        if entity.HasField("counter_entry") or entity.table_entry.is_default_action:
            kind = p4r.Update.MODIFY
        if self._rng.random() < 0.01:
            kind = self._rng.choice((p4r.Update.UNSPECIFIED, p4r.Update.INSERT, p4r.Update.DELETE))
        return p4r.Update(type=kind, entity=entity)

    def _spoiled(self) -> bool:
        return self._rng.random() < _SPOILED

    def _bytes(self, width: int) -> bytes:
        """A value of so many bits: small or any, in the shortest form or padded, seldom too wide or empty."""
        rng = self._rng
        value = rng.randrange(min(_VALUES, 1 << width)) if rng.random() < 0.8 else rng.getrandbits(width)
        if rng.random() < 0.01:
            return b"" if rng.random() < 0.3 else (value | 1 << width).to_bytes(width // 8 + 1, "big")
        length = max(1, (value.bit_length() + 7) // 8) + (rng.random() < 0.1)
        return value.to_bytes(length, "big")

    def _match(self, table: p4i.Table, message: p4r.TableEntry) -> None:
        rng = self._rng
        fields = list(table.match_fields)
        rng.shuffle(fields)
        for field in fields:
            kind, width = kind_of(field), field.bitwidth
            if rng.random() < (0.005 if kind == "exact" else 0.25):
                continue
            item = message.match.add(field_id=field.id)
            value = int.from_bytes(self._bytes(width), "big") & (1 << width) - 1
            if kind == "exact":
                item.exact.value = self._bytes(width)
            elif kind == "optional":
                item.optional.value = self._bytes(width)
            elif kind == "lpm":
                prefix = rng.randint(1, width)
                item.lpm.prefix_len = prefix
                item.lpm.value = _encode(value << (width - prefix) & (1 << width) - 1)
            elif kind == "ternary":
                mask = rng.getrandbits(width) or 1
                item.ternary.mask = _encode(mask)
                item.ternary.value = _encode(value & mask)
            else:
                low, high = sorted((value, rng.getrandbits(width)))
                item.range.low, item.range.high = _encode(low), _encode(high)
        if ranked(table):
            message.priority = rng.randint(1, 3)

    def _spoil_match(self, message: p4r.TableEntry) -> None:
        rng = self._rng
        choice = rng.randrange(5)
        if choice == 0:
            message.match.add(field_id=rng.randint(60, 70)).exact.value = b"\1"
        elif choice == 1 and message.match:
            message.match.append(message.match[0])
        elif choice == 2:
            message.priority = 0 if message.priority else rng.randint(1, 9)
        elif choice == 3 and message.match:
            item = rng.choice(message.match)
            if item.HasField("exact"):
                item.ternary.value = item.ternary.mask = b"\1"
            else:
                item.exact.value = b"\1"
        elif message.match:
            item = rng.choice(message.match)
            if item.HasField("ternary"):
                item.ternary.value, item.ternary.mask = b"\1", b"\2"
            elif item.HasField("range"):
                item.range.low, item.range.high = b"\2", b"\1"
            elif item.HasField("lpm"):
                item.lpm.prefix_len = rng.choice((0, -1, 4096))

    def _action(self, refs: list[p4i.ActionRef]) -> p4r.Action:
        rng = self._rng
        message = p4r.Action(action_id=rng.choice(refs).id if refs else _UNKNOWN_ID)
        if rng.random() < 0.01:
            message.action_id = rng.choice((0, _UNKNOWN_ID, *self._model.actions))
        action = self._model.actions.get(message.action_id, p4i.Action())
        for param in action.params:
            if rng.random() > 0.01:
                message.params.add(param_id=param.id, value=self._bytes(param.bitwidth))
        if rng.random() < 0.01:
            message.params.add(param_id=rng.randint(1, 9), value=b"\1")
        return message

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
            self._match(table, message)
        if self._spoiled() and rng.random() < 0.5:
            self._spoil_match(message)
        if rng.random() < 0.005:
            message.table_id = _UNKNOWN_ID
        if rng.random() < 0.005:
            message.is_const = True
        if rng.random() < (0.02 if not table.is_const_table else 0.7):
            pass
        elif table.implementation_id:
            self._reference(table.implementation_id, message)
        else:
            message.action.action.CopyFrom(self._action(self._refs(table, p4i.ActionRef.DEFAULT_ONLY)))
        self._extras(table, message)
        return p4r.Entity(table_entry=message)

    def _reference(self, profile: int, message: p4r.TableEntry) -> None:
        number = self._rng.randint(1, _IDS)
        if self._model.profiles[profile].with_selector and self._rng.random() < 0.5:
            message.action.action_profile_group_id = number
        elif self._rng.random() < 0.97:
            message.action.action_profile_member_id = number
        else:
            message.action.action.action_id = _UNKNOWN_ID

    def _extras(self, table: p4i.Table, message: p4r.TableEntry) -> None:
        rng, key = self._rng, table.preamble.id
        if rng.random() < 0.2 and not table.is_const_table:
            message.metadata = rng.randbytes(3)
        if rng.random() < (0.3 if key in self._model.direct_counters else 0.005):
            message.counter_data.packet_count = rng.randrange(100)
            message.counter_data.byte_count = rng.randrange(1000)
        if rng.random() < (0.3 if key in self._model.direct_meters else 0.005):
            rate = rng.randrange(1, 50)
            # Legal for a meter of any type.
            message.meter_config.cir = message.meter_config.pir = rate
            message.meter_config.cburst = message.meter_config.pburst = rate + 1
        ages = table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL and not table.is_const_table
        if rng.random() < (0.3 if ages else 0.002) and not table.is_const_table:
            message.idle_timeout_ns = 3_600_000_000_000 + rng.randrange(1000)

    def _default(self) -> p4r.Entity:
        rng = self._rng
        table = rng.choice(list(self._model.tables.values()))
        message = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
        # The default entry of a table with an action profile is NoAction for ever (9.1.3).
        if rng.random() < 0.8 and not table.implementation_id:
            message.action.action.CopyFrom(self._action(self._refs(table, p4i.ActionRef.TABLE_ONLY)))
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
        message.member_id = self._rng.randint(0 if self._spoiled() else 1, _IDS)
        tables = [self._model.tables[table] for table in profile.table_ids]
        refs = [ref for table in tables for ref in self._refs(table, p4i.ActionRef.DEFAULT_ONLY)]
        message.action.CopyFrom(self._action(refs))
        return p4r.Entity(action_profile_member=message)

    def _group(self) -> p4r.Entity:
        rng, profile = self._rng, self._profile()
        message = p4r.ActionProfileGroup(action_profile_id=profile.preamble.id)
        message.group_id = rng.randint(0 if self._spoiled() else 1, _IDS)
        message.max_size = min(profile.max_group_size, rng.randint(1, 8)) if profile.max_group_size else 0
        held = [member for owner, member in self._model.members if owner == profile.preamble.id]
        for member in rng.sample(held, rng.randint(0, min(3, len(held)))):
            part = message.members.add(member_id=member, weight=rng.randint(1, 2))
            if rng.random() < 0.3:
                part.watch_port = _encode(rng.choice(self._ports))
        if self._spoiled():
            message.members.add(member_id=rng.randint(1, _IDS), weight=rng.randint(-1, 2))
        return p4r.Entity(action_profile_group=message)

    def _counter(self) -> p4r.Entity:
        rng = self._rng
        counter = rng.choice(list(self._model.counters.values()))
        message = p4r.CounterEntry(counter_id=counter.preamble.id)
        if rng.random() < 0.97:
            message.index.index = rng.randrange(min(counter.size, _VALUES) or 1)
        if self._spoiled():
            message.index.index = rng.choice((-1, counter.size, counter.size + 5))
        message.data.packet_count, message.data.byte_count = rng.randrange(100), rng.randrange(1000)
        return p4r.Entity(counter_entry=message)

    def _multicast(self) -> p4r.Entity:
        message = p4r.MulticastGroupEntry(multicast_group_id=self._number(1 << 16))
        self._replicate(message)
        message.metadata = self._rng.randbytes(self._rng.randrange(3))
        engine = p4r.PacketReplicationEngineEntry(multicast_group_entry=message)
        return p4r.Entity(packet_replication_engine_entry=engine)

    def _session(self) -> p4r.Entity:
        message = p4r.CloneSessionEntry(session_id=self._number(1 << 15))
        self._replicate(message)
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
            message.replicas.add(egress_port=port, instance=instance)


def _encode(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
