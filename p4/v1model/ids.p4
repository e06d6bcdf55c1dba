// SPDX-License-Identifier: Apache-2.0
// P4Runtime ids and the version of what v1model has beyond every target: they continue ../shared/ids.p4.
//
//   0x14 00 00 NN  indirect meter NN

#ifndef POLYRHYTHM_V1MODEL_IDS_P4
#define POLYRHYTHM_V1MODEL_IDS_P4

#include "../shared/ids.p4"

// As POLYRHYTHM_VERSION counts; the second number is ahead of it by what only this target has.
#define V1MODEL_INTERFACE_VERSION "1.3.0"

#define HOST_DSCP_TABLE_ID    0x0200000D
#define PLANNED_PAIR_TABLE_ID 0x0200000E

#define PLANNED_PAIR_IPV6_TABLE_ID 0x0200002E

#define TRUST_ANSWERS_ACTION_ID 0x01000403
#define TRUST_PLANNED_ACTION_ID 0x01000404
#define TRUST_NOTHING_ACTION_ID 0x01000405
#define TRUST_PAIR_ACTION_ID    0x01000406

#define ANSWER_RATE_METER_ID 0x14000001

#endif
