// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Delays packets on purpose, inside the queueing discipline that they leave through: a classifier
 * that spins. For checking that the delay appears in the right part of the path, and in no other.
 *
 *   tc qdisc add dev DEV root handle 1: htb default 1
 *   tc class add dev DEV parent 1: classid 1:1 htb rate 10gbit
 *   tc filter add dev DEV parent 1: prio 1 bpf da obj hold.bpf.o sec hold_200us
 *
 * The kernel runs a classifier after its timestamp tx_sched (net/core/dev.c, __dev_queue_xmit) and
 * before its timestamp tx_kernel.
 */
#include "dwell.bpf.h"

#define TC_ACT_UNSPEC (-1)

/* Minimum length of the measurement's packets; shorter ones are ARP and the like. */
#define SHORTEST 500

/* Maximum number of clock reads: at more than 10 ns each, enough for 20 ms. */
#define MOST_READS (2 << 20)

static long (*bpf_loop)(__u32 times, void *each, void *context, __u64 flags) = (void *)181;

static long is_over(__u32 n, void *until)
{
	(void)n;
	return bpf_ktime_get_ns() >= *(__u64 *)until;
}

static __always_inline int hold(const struct __sk_buff *skb, __u64 nanoseconds)
{
	__u64 until = bpf_ktime_get_ns() + nanoseconds;

	if (skb->len >= SHORTEST)
		bpf_loop(MOST_READS, is_over, &until, 0);
	/* This program does not choose a class. */
	return TC_ACT_UNSPEC;
}

SEC("hold_20us")
int for_20us(struct __sk_buff *skb)
{
	return hold(skb, 20000);
}

SEC("hold_200us")
int for_200us(struct __sk_buff *skb)
{
	return hold(skb, 200000);
}

SEC("hold_2000us")
int for_2000us(struct __sk_buff *skb)
{
	return hold(skb, 2000000);
}

char licence[] SEC("license") = "Dual MIT/GPL";
