// SPDX-License-Identifier: Apache-2.0
// The version of the interface of v1model, which has the optional parts of ../shared/ids.p4.

#ifndef POLYRHYTHM_V1MODEL_IDS_P4
#define POLYRHYTHM_V1MODEL_IDS_P4

#define HOST_TRUST
#include "../shared/ids.p4"

// As POLYRHYTHM_VERSION counts; the second number is ahead of it by what only this target has.
#define V1MODEL_INTERFACE_VERSION "1.3.0"

#endif
