// SPDX-License-Identifier: Apache-2.0
// The version of the interface of v1model, which has the optional parts of ../shared/ids.p4.

#ifndef POLYRHYTHM_V1MODEL_IDS_P4
#define POLYRHYTHM_V1MODEL_IDS_P4

#define HOST_TRUST
#include "../shared/ids.p4"

// As POLYRHYTHM_VERSION counts; the second number is ahead of it by what only this target has.
#define V1MODEL_INTERFACE_VERSION "1.5.0"

#define SPREAD_TABLE_ID  0x02000010
#define ECN_TCP_TABLE_ID 0x02000011

#define SPRAY_RANDOM_ACTION_ID  0x01000109
#define SPRAY_IN_TURN_ACTION_ID 0x0100010A
#define MOVE_FLOWLETS_ACTION_ID 0x0100010B

#define SET_TCP_MARK_PROBABILITY_ACTION_ID 0x01000205

#define TURN_REGISTER_ID            0x16000001
#define FLOWLET_TIME_REGISTER_ID    0x16000002
#define FLOWLET_BUCKET_REGISTER_ID  0x16000003
#define PORT_LOAD_REGISTER_ID       0x16000004
#define MEMBER_PORT_REGISTER_ID     0x16000005
#define LEAST_MEMBER_REGISTER_ID    0x16000006
#define COMPARED_MEMBER_REGISTER_ID 0x16000007

#endif
