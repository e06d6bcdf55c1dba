/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* MLTCP-Reno for the kernel's TCP (CASSINI thesis, 1.2), as eBPF struct_ops.
 *
 * Reno whose window grows in congestion avoidance by F(r) packets a round trip instead of one, where r is the
 * part of its iteration's bytes that a connection has sent: F(r) = 1.75 r + 0.25. A gap between the last
 * acknowledgement and the next packet above 0.9 times the compute time begins an iteration, with a window of
 * ten packets. Bytes and compute time are learnt, as hostagent/nic/mltcp.py does: the median of the last three
 * iterations, and the longest of the last four gaps. Until an iteration has been seen, it is Reno.
 *
 * The kernel's own Reno is called wherever the two do not differ. The kernel lets only programs under the GPL
 * call it.
 */
#include "kernel.h"

#define SLOPE 1792     /* 1.75 in 1024ths, as hostagent/nic/mltcp.py: SLOPE */
#define INTERCEPT 256  /* 0.25 */
#define UNIT 1024
#define FIRST_WINDOW 10
#define LEAST_GAP_US 20000 /* shorter gaps separate no iterations; chosen, as in hostagent/nic/mltcp.py */
#define LEAST_BYTES 20000  /* what sends less is no iteration: a rendezvous, a barrier; chosen */
#define TOTALS 3
#define GAPS 4

/* What a connection knows; it lives in icsk_ca_priv. */
struct progress {
    __u64 base;           /* tcp_sock.bytes_acked when the iteration began */
    __u64 totals[TOTALS]; /* bytes of the last iterations, the newest first; 0: none yet */
    __u32 gaps[GAPS];     /* microseconds, the newest first */
};

_Static_assert(sizeof(struct progress) <= sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv),
               "more than the kernel has room for");

char LICENSE[] SEC("license") = "GPL";

/* Sums over all connections, for `polyrhythm agent mltcp status`. */
enum { CONNECTIONS, ITERATIONS, SUMS };

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SUMS);
    __type(key, __u32);
    __type(value, __u64);
} mltcp_sums SEC(".maps");

static inline void count(__u32 which)
{
    __u64 *sum = bpf_map_lookup_elem(&mltcp_sums, &which);

    if (sum)
        __sync_fetch_and_add(sum, 1);
}

static inline struct progress *progress_of(struct sock *sk)
{
    return (struct progress *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static inline __u64 median(const struct progress *at)
{
    __u64 a = at->totals[0], b = at->totals[1], c = at->totals[2];

    if (!c) /* two so far, or one: the smaller of those that there are */
        return b && b < a ? b : a;
    if ((a <= b) == (b <= c))
        return b;
    return (a <= b) == (a <= c) ? (b <= c ? c : b) : a;
}

/* The verifier allows no index into icsk_ca_priv that is not constant, so the newest comes first. */
#define PUSH(array, length, value) \
    do { \
        for (int i = (length) - 1; i > 0; i--) \
            (array)[i] = (array)[i - 1]; \
        (array)[0] = (value); \
    } while (0)

/* F(r) in 1024ths. */
static inline __u32 weight(const struct progress *at, __u64 sent)
{
    __u64 total = median(at);

    if (!total)
        return UNIT;
    if (sent >= total)
        return SLOPE + INTERCEPT;
    return SLOPE * sent / total + INTERCEPT;
}

SEC("struct_ops/mltcp_init")
void BPF_PROG(mltcp_init, struct sock *sk)
{
    struct progress *at = progress_of(sk);

    __builtin_memset(at, 0, sizeof(*at));
    at->base = ((struct tcp_sock *)sk)->bytes_acked;
    count(CONNECTIONS);
}

SEC("struct_ops/mltcp_cwnd_event")
void BPF_PROG(mltcp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
    struct tcp_sock *tp = (struct tcp_sock *)sk;
    struct progress *at = progress_of(sk);
    __u64 now_us = bpf_ktime_get_ns() / 1000, sent = tp->bytes_acked - at->base;
    __u64 gap = now_us - tp->delivered_mstamp, compute = 0;
    int whole;

    /* A packet is sent with nothing in flight, after an acknowledgement. */
    if (event != CA_EVENT_TX_START || !tp->delivered_mstamp || gap < LEAST_GAP_US || gap > 1ULL << 31)
        return;
    for (int i = 0; i < GAPS; i++)
        if (at->gaps[i] > compute)
            compute = at->gaps[i];
    PUSH(at->gaps, GAPS, gap);
    /* A shorter gap ends the iteration too if all its bytes are acknowledged: compute time varies. */
    whole = median(at) && sent >= median(at) * 95 / 100;
    if (gap * 10 <= compute * 9 && !whole)
        return;
    at->base = tp->bytes_acked;
    tp->snd_cwnd = FIRST_WINDOW;
    if (sent < LEAST_BYTES)
        return;
    PUSH(at->totals, TOTALS, sent);
    count(ITERATIONS);
}

/* As tcp_reno_cong_avoid, but for the weight. */
SEC("struct_ops/mltcp_cong_avoid")
void BPF_PROG(mltcp_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
    struct tcp_sock *tp = (struct tcp_sock *)sk;
    struct progress *at = progress_of(sk);
    __u32 cwnd = tp->snd_cwnd, window;

    if (cwnd < tp->snd_ssthresh) {
        tcp_reno_cong_avoid(sk, ack, acked);
        return;
    }
    if (!BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
        return;
    window = cwnd * UNIT / weight(at, tp->bytes_acked - at->base);
    tcp_cong_avoid_ai(tp, window ? window : 1, acked);
}

SEC("struct_ops/mltcp_ssthresh")
__u32 BPF_PROG(mltcp_ssthresh, struct sock *sk)
{
    return tcp_reno_ssthresh(sk);
}

SEC("struct_ops/mltcp_undo_cwnd")
__u32 BPF_PROG(mltcp_undo_cwnd, struct sock *sk)
{
    return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops mltcp_reno = {
    .init = (void *)mltcp_init,
    .ssthresh = (void *)mltcp_ssthresh,
    .cong_avoid = (void *)mltcp_cong_avoid,
    .cwnd_event = (void *)mltcp_cwnd_event,
    .undo_cwnd = (void *)mltcp_undo_cwnd,
    .flags = TCP_CONG_NON_RESTRICTED,
    .name = "mltcp_reno",
};
