// SPDX-License-Identifier: Apache-2.0
// P4Runtime ids: part of the control-plane interface, the same on every target, never reused.
//
//   0x01 00 TT NN  action NN of table group TT      0x02 00 00 TT  table TT
//   0x12 00 00 NN  indirect counter NN              0x14 00 00 NN  indirect meter NN
//
// Table groups: 01 forwarding, 02 queueing, 03 telemetry, 04 edge. A retired id stays listed here as retired.

#ifndef POLYRHYTHM_IDS_P4
#define POLYRHYTHM_IDS_P4

// The control-plane interface's version: the first number changes when a controller of the old one would
// fail (a name, key, width, id or wire byte changes or goes), the second when something is added.
#define POLYRHYTHM_VERSION "1.1.0"

#define ROUTING_TABLE_ID         0x02000001
#define ECMP_TABLE_ID            0x02000002
#define NEXT_HOP_TABLE_ID        0x02000003
#define QUEUE_TABLE_ID           0x02000004
#define ECN_TABLE_ID             0x02000005
#define EDGE_TABLE_ID            0x02000006
#define SWITCH_IDENTITY_TABLE_ID 0x02000007
#define PINNED_FLOW_TABLE_ID     0x02000008
#define PORT_STATE_TABLE_ID      0x02000009
#define REMARK_TABLE_ID          0x0200000A
#define REMARK_FLOW_TABLE_ID     0x0200000B
#define EDGE_INGRESS_TABLE_ID    0x0200000C

// The IPv6 counterpart of table TT of IPv4 is 0x20 + TT.
#define ROUTING_IPV6_TABLE_ID     0x02000021
#define PINNED_FLOW_IPV6_TABLE_ID 0x02000028
#define REMARK_FLOW_IPV6_TABLE_ID 0x0200002B

#define SET_NEXT_HOP_ACTION_ID             0x01000101
#define SET_ECMP_GROUP_TIER0_ACTION_ID     0x01000102
#define SET_ECMP_GROUP_TIER1_ACTION_ID     0x01000103
#define SET_ECMP_GROUP_TIER2_ACTION_ID     0x01000104
#define FORWARD_ACTION_ID                  0x01000105
#define DROP_ACTION_ID                     0x01000106
#define SET_NEXT_HOP_WITH_BACKUP_ACTION_ID 0x01000107
#define SET_PORT_DOWN_ACTION_ID            0x01000108

#define SET_QUEUE_ACTION_ID            0x01000201
#define SET_MARK_PROBABILITY_ACTION_ID 0x01000202
#define SET_DSCP_ACTION_ID             0x01000203
#define SET_DSCP_BY_FLOW_ACTION_ID     0x01000204

#define MARK_EDGE_ACTION_ID     0x01000301
#define SET_SWITCH_ID_ACTION_ID 0x01000302

#define STOP_STRAYS_ACTION_ID   0x01000401
#define REMARK_STRAYS_ACTION_ID 0x01000402

#define INGRESS_PACKETS_COUNTER_ID 0x12000001
#define EGRESS_PACKETS_COUNTER_ID  0x12000002
#define ECN_MARKS_COUNTER_ID       0x12000003
#define STRAY_PACKETS_COUNTER_ID   0x12000004

// host_trust.p4, which v1model has; on TNA it is an option, off by default (docs/tofino.md).
#ifdef HOST_TRUST
#define HOST_DSCP_TABLE_ID    0x0200000D
#define PLANNED_PAIR_TABLE_ID 0x0200000E
#define PLANNED_FLOW_TABLE_ID 0x0200000F

#define PLANNED_PAIR_IPV6_TABLE_ID 0x0200002E
#define PLANNED_FLOW_IPV6_TABLE_ID 0x0200002F

#define TRUST_ANSWERS_ACTION_ID        0x01000403
#define TRUST_PLANNED_ACTION_ID        0x01000404
#define TRUST_NOTHING_ACTION_ID        0x01000405
#define TRUST_PAIR_ACTION_ID           0x01000406
#define TRUST_ANSWERING_PAIR_ACTION_ID 0x01000407
#define TRUST_PAIR_BOTH_WAYS_ACTION_ID 0x01000408
#define TRUST_FLOW_ACTION_ID           0x01000409

#define ANSWER_RATE_METER_ID 0x14000001
#define CPU_RATE_METER_ID    0x14000002
#endif

#endif
