// SPDX-License-Identifier: Apache-2.0
// How the packets of a class are spread over an ECMP group, if not by their hash: each packet by itself
// (random or in turn), or each flowlet over the port that has sent the least.
//
// The choice is a bucket, so weights and the backups of dead ports count as they do for a hash. Only RoCEv2
// packets are looked at, and pinned flows keep their next hop.

#ifndef POLYRHYTHM_SPREADING_P4
#define POLYRHYTHM_SPREADING_P4

#include "ids.p4"
#include "target.p4"

#define SPREAD_SIZE 4096
#define TURNS       1024    // groups and classes that are served in turn
#define FLOWLETS    4096    // flows whose hashes share 12 bits share a flowlet
#define MEMBERS     4096    // 64 groups with 64 members each
#define PORTS       512     // every port

// What a port has sent of flowlets: bytes (32 bits) that are halved in each epoch (the discounting rate
// estimator of CONGA, Alizadeh et al. 2014, 3.2, with alpha = 1/2), and the epoch (48 bits) in which they were
// counted.
@name(".port_load") @id(PORT_LOAD_REGISTER_ID)
register<bit<80>, port_t>(PORTS) port_load;

// The port that the packets of a member left by last: its own or a backup's. 0: not used yet.
@name(".member_port") @id(MEMBER_PORT_REGISTER_ID)
register<port_t, bit<12>>(MEMBERS) member_port;

// The bytes of a port after the halvings since they were counted. A shift takes 8 bits on BMv2.
#define READ_LOAD(load, port) \
    port_load.read(state, port); \
    age = meta.flowlet.load_epoch - state[47:0]; \
    load = age > 31 ? 0 : state[79:48] >> (bit<8>) age;

// The next member of the group takes the place of the least if it has sent less.
#define COMPARE_NEXT \
    if (meta.flowlet.other >= meta.flowlet.last_member) { first_other(); } else { next_other(); } \
    read_other(); \
    if (meta.flowlet.other_load < meta.flowlet.least_load) { take_other(); }

control Spreading(inout headers_t hdr, inout metadata_t meta) {
    // The bucket whose turn it is.
    @name(".turn") @id(TURN_REGISTER_ID)
    register<bucket_t, bit<10>>(TURNS) turn;

    // Of each flowlet: when its last packet came (microseconds), and its bucket.
    @name(".flowlet_time") @id(FLOWLET_TIME_REGISTER_ID)
    register<bit<48>, bit<12>>(FLOWLETS) flowlet_time;
    @name(".flowlet_bucket") @id(FLOWLET_BUCKET_REGISTER_ID)
    register<bit<6>, bit<12>>(FLOWLETS) flowlet_bucket;

    // Of each group: the member that had sent the least at the last flowlet's start, and the one that was
    // compared with it last. Each start compares eight more: all of a group that has no more.
    @name(".least_member") @id(LEAST_MEMBER_REGISTER_ID)
    register<bit<6>, bit<6>>(64) least_member;
    @name(".compared_member") @id(COMPARED_MEMBER_REGISTER_ID)
    register<bit<6>, bit<6>>(64) compared_member;

    @name(".spray_random") @id(SPRAY_RANDOM_ACTION_ID)
    action spray_random() {
        random<bucket_t>(meta.bucket, 0, 0xFF);
    }

    // Groups and classes with the same `cell` take turns together.
    @name(".spray_in_turn") @id(SPRAY_IN_TURN_ACTION_ID)
    action spray_in_turn(bit<10> cell) {
        turn.read(meta.bucket, cell);
        turn.write(cell, meta.bucket + 1);
    }

    // A flow that paused for `gap` microseconds or more moves to the port that has sent the least. Bytes are
    // halved every 2^half_life microseconds. The buckets 0 to `last_member` hold each member of the group once;
    // `cell` is the group's own.
    @name(".move_flowlets") @id(MOVE_FLOWLETS_ACTION_ID)
    action move_flowlets(bit<32> gap, bit<8> half_life, bit<6> last_member, bit<6> cell) {
        bit<48> last;
        meta.has_flowlets = 1;
        meta.flowlet.load_epoch = meta.arrival >> half_life;
        meta.flowlet.group_cell = cell;
        meta.flowlet.last_member = last_member;
        meta.flowlet.shortest_pause = (bit<48>) gap;
        meta.flowlet.number = meta.flow_hash[31:20];
        flowlet_time.read(last, meta.flowlet.number);
        flowlet_time.write(meta.flowlet.number, meta.arrival);
        meta.flowlet.pause = meta.arrival - last;
        flowlet_bucket.read(meta.flowlet.member, meta.flowlet.number);
        least_member.read(meta.flowlet.least, cell);
        compared_member.read(meta.flowlet.other, cell);
    }

    @hidden
    action read_least() {
        port_t  port;
        bit<80> state;
        bit<48> age;
        member_port.read(port, meta.flowlet.group_cell ++ meta.flowlet.least);
        READ_LOAD(meta.flowlet.least_load, port)
    }

    @hidden
    action next_other() {
        meta.flowlet.other = meta.flowlet.other + 1;
    }

    @hidden
    action first_other() {
        meta.flowlet.other = 0;
    }

    @hidden
    action read_other() {
        port_t  port;
        bit<80> state;
        bit<48> age;
        member_port.read(port, meta.flowlet.group_cell ++ meta.flowlet.other);
        READ_LOAD(meta.flowlet.other_load, port)
    }

    @hidden
    action take_other() {
        meta.flowlet.least = meta.flowlet.other;
        meta.flowlet.least_load = meta.flowlet.other_load;
    }

    @hidden
    action start_flowlet() {
        meta.flowlet.member = meta.flowlet.least;
        flowlet_bucket.write(meta.flowlet.number, meta.flowlet.least);
        least_member.write(meta.flowlet.group_cell, meta.flowlet.least);
        compared_member.write(meta.flowlet.group_cell, meta.flowlet.other);
    }

    @name(".spread") @id(SPREAD_TABLE_ID)
    table spread {
        key = {
            meta.group_id : exact @name("group_id");
            IP_DSCP : exact @name("dscp");
        }
        actions = { spray_random; spray_in_turn; move_flowlets; @defaultonly NoAction; }
        const default_action = NoAction();
        size = SPREAD_SIZE;
    }

    apply {
        if (hdr.bth.isValid()) {
            switch (spread.apply().action_run) {
                move_flowlets: {
                    if (meta.flowlet.pause >= meta.flowlet.shortest_pause
                        || meta.flowlet.member > meta.flowlet.last_member) {
                        if (meta.flowlet.least > meta.flowlet.last_member) {
                            meta.flowlet.least = 0;
                        }
                        read_least();
                        COMPARE_NEXT COMPARE_NEXT COMPARE_NEXT COMPARE_NEXT
                        COMPARE_NEXT COMPARE_NEXT COMPARE_NEXT COMPARE_NEXT
                        start_flowlet();
                    }
                    meta.bucket = (bucket_t) meta.flowlet.member;
                }
            }
        }
    }
}

// After Forwarding, which may have taken a backup.
control FlowletBytes(inout metadata_t meta) {
    @hidden
    action count_bytes() {
        bit<80> state;
        bit<48> age;
        bit<32> load;
        READ_LOAD(load, meta.egress_port)
        port_load.write(meta.egress_port, load + meta.frame_bytes ++ meta.flowlet.load_epoch);
        member_port.write(meta.flowlet.group_cell ++ meta.flowlet.member, meta.egress_port);
    }

    apply {
        if (meta.has_flowlets == 1) {
            count_bytes();
        }
    }
}

// Forwarding asks it for another bucket than the hash's.
#define SPREADING Spreading

#endif
