# SPDX-License-Identifier: Apache-2.0
"""Run by test_p4runtime_shell.py with the Python of the shell's own environment: p4runtime-shell as a backup.

Prints what it saw as JSON. Arguments: those of p4runtime-shell itself.
"""

import json
import sys

import grpc
import p4runtime_sh.shell as sh


def main():
    args = sh.get_arg_parser().parse_args(sys.argv[1:])
    sh.setup(args.device_id, args.grpc_addr, args.election_id, verbose=False)
    seen = {
        "version": str(sh.APIVersion()),
        "tables": sorted(table.name for table in sh.P4Objects(sh.P4Type.table)),
    }
    hops = []
    sh.TableEntry("next_hop").read(lambda entry: hops.append(entry.match["next_hop_id"].exact.value.hex()))
    seen["hops"] = hops
    cells = sh.CounterEntry("egress_packets")
    cells.index = 9
    seen["count"] = [cell.packet_count for cell in cells.read()]
    entry = sh.TableEntry("next_hop")(action="forward")
    entry.match["next_hop_id"] = "9"
    entry.action["port"], entry.action["src_mac"], entry.action["dst_mac"] = "1", "1", "1"
    try:
        entry.insert()
    except grpc.RpcError as error:
        seen["refused"] = error.code().name
    sh.teardown()
    print(json.dumps(seen))


main()
