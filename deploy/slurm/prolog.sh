#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PrologSlurmctld=/etc/slurm/polyrhythm/prolog.sh: declares the job at the controller.
# The call runs in a session of its own, so that Slurm neither waits for it nor ends it with this script, and
# this script always succeeds: no job fails or waits because of Polyrhythm.
exec </dev/null >/dev/null 2>&1
(
    settings=${POLYRHYTHM_SETTINGS:-/etc/polyrhythm/slurm.env}
    [ ! -r "$settings" ] || . "$settings"
    log=${POLYRHYTHM_LOG:-/dev/null}
    (: >>"$log") || log=/dev/null
    # The call is in its session before this script ends: then Slurm ends what is left of the script's group.
    # shellcheck disable=SC2086 # the options are words
    exec setsid -w sh -c '"$@" &' sh timeout -k 5 120 "${POLYRHYTHM:-/opt/polyrhythm/bin/polyrhythm}" slurm prolog \
        --controller "${POLYRHYTHM_CONTROLLER:-http://127.0.0.1:8080}" ${POLYRHYTHM_OPTIONS:-} >>"$log" 2>&1
)
exit 0
