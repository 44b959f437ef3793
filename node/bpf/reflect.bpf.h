/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * Configuration, counters and sums of reflect.bpf.c. Structures are shared with
 * node/io/src/bpf/reflect. Addresses are IPv6; those of IPv4 are mapped (RFC 4291 2.5.5.2).
 */
#ifndef REFLECT_BPF_H
#define REFLECT_BPF_H

#include "dwell.bpf.h"

#define htonl(x) __builtin_bswap32(x)
#define ntohl(x) __builtin_bswap32(x)

#define XDP_DROP 1
#define XDP_TX 3
#define BPF_MAP_TYPE_HASH 1
#define BPF_NOEXIST 1

/* Maximum number of services: MAX_SERVICES in core/engine/src/reflector/driver.rs. */
#define SERVICES 64

/* Entries for destinations and own addresses: twice MAX_DESTINATIONS in
 * core/engine/src/reflector/driver.rs, because new entries are written before old ones are deleted. */
#define DESTINATIONS 8192

/* Maximum length in bytes of a datagram that the program answers: a jumbo frame. */
#define LENGTH 9216

/* Protocols that the program answers. */
enum kind {
	KIND_STAMP = 1,
	KIND_ECHO,
	KIND_ROUNDTRIP,
	KIND_ICMP,
};

/* Destination of a request; the port is in network order, 0 for ICMP. */
struct service_key {
	__u32 address[4];
	__u16 port;
	__u16 protocol;
};

struct service {
	__u64 local_gap; /* ns between replies to one source; 0: no limit */
	__u64 global_gap;
	__u32 number;	 /* index of its counters */
	__u32 kind;
};

/* Set before loading. */
struct reflect {
	__u64 seed;	   /* of hashes, random */
	__u64 multiplier;  /* of hashes, random and odd */
	__u64 ports[1024]; /* bitmap of source ports that get no reply */
	__u8 clock[12];	   /* identity of the clock, in a node clock TLV */
	__u8 has_clock;
	__u8 loopback;	   /* sources of this machine are answered */
	__u8 stateless;	   /* copy the sender's sequence number */
	__u8 spare;
};

/* Updated while the program runs. */
struct reflect_state {
	__u64 tai_offset; /* CLOCK_TAI minus CLOCK_REALTIME, ns */
	__u32 mtu;	  /* of the interface */
	__u16 mac[3];	  /* of the interface */
	__u16 error;	  /* STAMP error estimate, network order */
	__u8 native;	  /* attached natively */
	__u8 spare[3];
	__u64 own;	  /* the bits own_bit() of the own addresses */
};

/* A STAMP session. It stays with the socket once a packet of it has gone there. */
struct session {
	__u64 key;	 /* hash of source, SSID and service; 0: unused */
	__u64 last;	 /* CLOCK_TAI of its last request */
	__u32 owner;	 /* hash of the source's IPv4 address or IPv6 prefix of 56 bits */
	__u32 received;
	__u32 at_socket;
	__u32 spare;
};

#define SESSION_WAYS 8
#define SESSION_SETS 2048

/* Sets that the sessions of one owner may use. */
#define SESSION_SPREAD 128

struct session_set {
	struct session way[SESSION_WAYS];
};

/* Outcomes of a request, in the order of their counters. */
enum outcome {
	REPLIED,
	TO_SOCKET,
	MALFORMED,
	BAD_CHECKSUM,
	LIMITED,
	LOOPING,
	SILENCED,
	OUTCOMES,
};

struct reflect_counters {
	__u64 of[8];
};

_Static_assert(sizeof(struct service_key) == 20, "node/io/src/bpf/reflect writes 20 bytes");
_Static_assert(sizeof(struct service) == 24, "node/io/src/bpf/reflect writes 24 bytes");
_Static_assert(sizeof(struct reflect) == 8224, "node/io/src/bpf/reflect writes 8224 bytes");
_Static_assert(sizeof(struct reflect_state) == 32, "node/io/src/bpf/reflect writes 32 bytes");
_Static_assert(sizeof(struct session) == 32, "node/io/src/bpf/reflect reads 32 bytes");
_Static_assert(OUTCOMES <= 8, "counters have room");

extern const volatile struct reflect reflect;

/* Request being answered. Addresses and ports are in network order. */
struct request {
	__u32 from[4];
	__u16 from_port;
	__u16 length;	  /* of the payload; ICMP: from its header on */
	__u32 transport;  /* offset of the UDP or ICMP header in the frame */
	__u64 pseudo;	  /* sum of the pseudo header */
	__u64 hash;	  /* of the payload */
	__u32 hops;
	__u64 is_ipv6;	  /* 64 bits, which the verifier remembers on the stack */
};

/* A word of a packet; the compiler may not assume that members of other types lie elsewhere. */
typedef __u32 __attribute__((may_alias)) packet_word;

/* Folds a sum of 16-bit words (RFC 1071): adds the halves, whose carry reaches the upper half of the
 * doubled sum. */
static __always_inline __u16 fold(__u64 sum)
{
	__u32 half;

	sum += sum << 32 | sum >> 32;
	half = sum >> 32;
	half += half << 16 | half >> 16;
	return half >> 16;
}

/* Returns a checksum after data with the sum `old` was replaced by data with the sum `new` (RFC
 * 1624, 3). */
static __always_inline __u16 exchanged(__u16 checksum, __u64 old, __u64 new)
{
	return ~fold((__u64)(__u16)~checksum + (__u16)~fold(old) + fold(new));
}

/*
 * Mixes a word into a hash. The seed and the multiplier are secret, but the highest bit of a word passes
 * unchanged: a sender can cancel it by two bits of the next word. So payloads with equal hashes exist,
 * which only count as identical requests of their own sender.
 */
static __always_inline __u64 mixed(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * reflect.multiplier;
	return hash ^ hash >> 29;
}

/*
 * Returns the folded sum of bytes of the frame. A global function, which the verifier checks once.
 */
__attribute__((noinline)) __u64 sum_bytes(struct xdp_md *context, __u32 offset, __u32 length)
{
	const __u8 *at = (void *)(unsigned long)context->data;
	const void *end = (void *)(unsigned long)context->data_end;
	__u64 sum = 0;
	__u32 i;

	if (offset > 128 || length > LENGTH)
		return 0;
	at += offset;
	for (i = 0; i < LENGTH / 32; i++) {
		const packet_word *words = (const packet_word *)at;

		if (length < 32 || (void *)(at + 32) > end)
			break;
		sum += (__u64)words[0] + words[1] + words[2] + words[3] + words[4] + words[5] +
		       words[6] + words[7];
		at += 32;
		length -= 32;
	}
	for (i = 0; i < 7; i++) {
		if (length < 4 || (void *)(at + 4) > end)
			break;
		sum += *(const packet_word *)at;
		at += 4;
		length -= 4;
	}
	if (length & 2 && (void *)(at + 2) <= end) {
		sum += *(const __u16 *)at;
		at += 2;
	}
	if (length & 1 && (void *)(at + 1) <= end)
		sum += *at;
	return fold(sum);
}

/*
 * Returns the folded sum of bytes of the frame in the lowest 16 bits, and a hash of them above. A
 * global function, which the verifier checks once.
 */
__attribute__((noinline)) __u64 digest(struct xdp_md *context, __u32 offset, __u32 length)
{
	__u8 *at = (void *)(unsigned long)context->data;
	void *end = (void *)(unsigned long)context->data_end;
	__u64 sum = 0, hash = reflect.seed, other = hash ^ reflect.multiplier, word;
	__u32 i;

	if (offset > 128 || length > LENGTH)
		return 0;
	at += offset;
	/* Two hashes, which the processor computes at once. */
	for (i = 0; i < LENGTH / 16; i++) {
		if (length < 16 || (void *)(at + 16) > end)
			break;
		word = *(__u64 *)at;
		sum += (__u32)word;
		sum += word >> 32;
		hash = mixed(hash, word);
		word = *(__u64 *)(at + 8);
		sum += (__u32)word;
		sum += word >> 32;
		other = mixed(other, word);
		at += 16;
		length -= 16;
	}
	if (length & 8 && (void *)(at + 8) <= end) {
		word = *(__u64 *)at;
		sum += (__u32)word;
		sum += word >> 32;
		hash = mixed(hash, word);
		at += 8;
	}
	/* Exchanged halves: equal changes of both hashes do not cancel. */
	hash = mixed(hash, other << 32 | other >> 32);
	word = 0;
	if (length & 4 && (void *)(at + 4) <= end) {
		word = *(__u32 *)at;
		at += 4;
	}
	sum += word;
	hash = mixed(hash, word);
	word = 0;
	if (length & 2 && (void *)(at + 2) <= end) {
		word = *(__u16 *)at;
		at += 2;
	}
	if (length & 1 && (void *)(at + 1) <= end)
		word += (__u64)*at << 32;
	sum += (__u32)word + (word >> 32);
	hash = mixed(hash, word);
	return hash << 16 | fold(sum);
}

#endif
