/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What mltcp_reno.bpf.c needs of the kernel's types: the fields that it reads and writes, by name. libbpf finds
 * where the running kernel has them, from its BTF (CO-RE), so no kernel headers are needed to build it.
 */
#ifndef POLYRHYTHM_MLTCP_KERNEL_H
#define POLYRHYTHM_MLTCP_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Not read: libbpf compares kinds of types, and a declared structure is of another kind than a defined one. */
struct sock {
    unsigned long sk_flags;
};

struct inet_connection_sock {
    __u64 icsk_ca_priv[13];
};

struct tcp_sock {
    __u32 snd_cwnd;
    __u32 snd_ssthresh;
    __u64 bytes_acked;
    __u64 delivered_mstamp; /* when something was last acknowledged: microseconds of the monotonic clock */
    __u8 is_cwnd_limited : 1;
};

enum tcp_ca_event {
    CA_EVENT_TX_START,
};

struct tcp_congestion_ops {
    void (*init)(struct sock *sk);
    __u32 (*ssthresh)(struct sock *sk);
    void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
    void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
    __u32 (*undo_cwnd)(struct sock *sk);
    __u32 flags;
    char name[16];
};

#pragma clang attribute pop

/* A network namespace may choose it without privileges (linux/tcp.h). */
#define TCP_CONG_NON_RESTRICTED 1

extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;
extern void tcp_cong_avoid_ai(struct tcp_sock *tp, __u32 w, __u32 acked) __ksym;

#endif
