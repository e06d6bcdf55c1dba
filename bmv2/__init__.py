# SPDX-License-Identifier: Apache-2.0
"""What runs `p4/build`: the embedded switch, and the launcher of `simple_switch_grpc`."""
