/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * Configuration and events of probe_stamps.bpf.c. Structures are shared with
 * node/io/src/bpf/driver_stamps.
 */
#ifndef PROBE_STAMPS_BPF_H
#define PROBE_STAMPS_BPF_H

#include "dwell.bpf.h"

/* Probes and replies of one measurement. Set before loading, so that the verifier removes unused
 * code. Addresses and ports are in network order. */
struct probe_filter {
	__u32 local[4];	     /* IPv4: the first word */
	__u32 remote[4];
	__u16 local_port;    /* 0: any; ICMP: identifier */
	__u16 remote_port;   /* 0 for ICMP */
	__u16 probe_id_at;   /* offset of the id in a probe, from the transport header on */
	__u16 reply_id_at;   /* the same in a reply */
	__u8 id_length;	     /* 2, 4 or 8 bytes; 0: no id */
	__u8 family;	     /* 4 or 6 */
	__u8 protocol;	     /* UDP, ICMP, ICMPV6 */
	__u8 spare;
};

/* A reply in the driver, or a probe at tcx egress. */
struct probe_event {
	__u64 tai;	/* CLOCK_TAI, ns */
	__u8 id[8];	/* id_length bytes of the packet; the rest is zero */
	__u32 is_probe;
	__u32 interface;
};

_Static_assert(sizeof(struct probe_filter) == 44, "node/io/src/bpf/driver_stamps writes 44 bytes");
_Static_assert(sizeof(struct probe_event) == 24, "node/io/src/bpf/driver_stamps reads 24 bytes");

#endif
