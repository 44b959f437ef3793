/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * STAMP packets without authentication (RFC 8762 4.2, 4.3) and the TLVs that the program answers
 * (RFC 8972 4). core/engine/src/reflector/stamp.rs decides on all others.
 */
#ifndef REFLECT_STAMP_BPF_H
#define REFLECT_STAMP_BPF_H

#include "reflect.bpf.h"
#include "reflect_rules.bpf.h"

/* Maximum number of TLVs that the program answers. */
#define TLVS 6

#define TLV_PADDING 1
#define TLV_NODE_CLOCK 240
#define TLV_PATH 241
#define TLV_SOCKET_DROPS 242
#define TLV_UNRECOGNISED 0x80

/* First 4 bytes of values of dwell's own types: "dwll" and "dwlp". */
#define NODE_CLOCK_MAGIC htonl(0x64776c6c)
#define PATH_MAGIC htonl(0x64776c70)

struct stamp {
	__u32 sequence;
	__u32 time[2];	     /* T1 of a request, T3 of a reply */
	__u16 error;
	__u16 ssid;
	__u32 received[2];   /* T2, from here on fields of replies */
	__u32 sender_sequence;
	__u32 sender_time[2];
	__u16 sender_error;
	__u16 zero;
	__u8 hops;
	__u8 zeros[3];
};

_Static_assert(sizeof(struct stamp) == 44, "RFC 8762 figure 5");

struct tlv {
	__u8 flags;
	__u8 type;
	__u16 length;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SESSION_SETS);
	__type(key, __u32);
	__type(value, struct session_set);
} sessions SEC(".maps");

/* Larger than the rank of every session: times are below 2^63 ns. */
#define NO_RANK (~0ULL >> 1)

/* Returns the lower rank without a comparison: the verifier would follow both outcomes of each. */
static __always_inline __u64 lower(__u64 one, __u64 other)
{
	__u64 below = one - other, mask = (__s64)below >> 63;

	/* The compiler would make it a comparison again. */
	asm volatile("" : "+r"(mask));
	return other + (below & mask);
}

/*
 * Returns the number of the session of a request, a new one if it is unknown. A global function, which
 * the verifier checks once. node/io/src/bpf/reflect_sessions.rs finds sessions in the same way. In a full set, a new session replaces the oldest one of its owner, or
 * the oldest one if its owner has none there: one owner has at most 1,024 sessions, and evicts at
 * most one session of others from each of its 128 sets.
 */
__attribute__((noinline)) __u32 locate_session(const struct request *request, __u32 service,
					       __u32 ssid, __u64 now)
{
	__u64 key, owner = reflect.seed, oldest = NO_RANK, oldest_own = NO_RANK;
	__u32 number, i, way;
	struct session_set *set;
	struct session *session;

	if (!request)
		return 0;
	key = mixed(source_hash(request, service), ssid) | 1;
	if (is_mapped(request->from))
		owner = mixed(owner, request->from[3]);
	else
		owner = mixed(owner, (__u64)request->from[0] << 32 |
					     (request->from[1] & 0x00ffffff));
	number = ((owner >> 32) + (key >> 32 & (SESSION_SPREAD - 1))) & (SESSION_SETS - 1);
	set = bpf_map_lookup_elem(&sessions, &number);
	if (!set)
		return 0;
	for (i = 0; i < SESSION_WAYS; i++) {
		session = &set->way[i];
		if (session->key == key) {
			session->last = now;
			return number * SESSION_WAYS + i;
		}
	}
	/* The low bits of a rank are the number of the entry. An unused one has the time 0. */
	for (i = 0; i < SESSION_WAYS; i++) {
		__u64 rank = (set->way[i].last & ~(SESSION_WAYS - 1ULL)) | i;

		oldest = lower(oldest, rank);
		if (set->way[i].owner == (__u32)owner)
			oldest_own = lower(oldest_own, rank);
	}
	way = oldest >= SESSION_WAYS && oldest_own != NO_RANK ? oldest_own : oldest;
	session = &set->way[way & (SESSION_WAYS - 1)];
	session->key = key;
	session->last = now;
	session->owner = owner;
	session->received = 0;
	session->at_socket = 0;
	return number * SESSION_WAYS + (way & (SESSION_WAYS - 1));
}

/* Returns the session of a request; see locate_session(). */
static __always_inline struct session *find_session(const struct request *request, __u32 service,
						    __u16 ssid, __u64 now)
{
	__u32 at = locate_session(request, service, ssid, now), number = at / SESSION_WAYS;
	struct session_set *set = bpf_map_lookup_elem(&sessions, &number);

	return set ? &set->way[at & (SESSION_WAYS - 1)] : 0;
}

/* Similarity to a reply: core/wire/src/stamp.rs. */
enum likeness {
	LIKENESS_NONE,
	LIKENESS_PARTIAL,
	LIKENESS_FULL,
};

/* Whether T3 is less than a second after T2, in the format that the error estimate names. */
static __always_inline int residence_fits(const __u32 *t3, const __u32 *t2, __u16 error)
{
	__u64 later = (__u64)ntohl(t3[0]) << 32 | ntohl(t3[1]);
	__u64 earlier = (__u64)ntohl(t2[0]) << 32 | ntohl(t2[1]);
	long long between;

	if (!(error & htons(0x4000)))
		return later - earlier < 1ULL << 32;
	between = (long long)(__s32)(ntohl(t3[0]) - ntohl(t2[0])) * 1000000000 + ntohl(t3[1]) -
		  ntohl(t2[1]);
	return between >= 0 && between < 1000000000;
}

/* Whether all bytes of a timestamp are equal: padding, not a time. */
static __always_inline int is_constant(const __u32 *time)
{
	return time[0] == time[1] && time[0] == (time[0] << 8 | time[0] >> 24);
}

static __always_inline int likeness(const struct stamp *packet)
{
	if (!residence_fits(packet->time, packet->received, packet->error))
		return LIKENESS_NONE;
	if (packet->sender_error && packet->hops && !packet->zero && !packet->zeros[0] &&
	    !packet->zeros[1] && !packet->zeros[2])
		return LIKENESS_FULL;
	return is_constant(packet->received) ? LIKENESS_NONE : LIKENESS_PARTIAL;
}

/*
 * Whether an echo request may be a reply of a STAMP or TWAMP-light reflector in either mode; the
 * socket engine then decides.
 */
static __always_inline int may_be_reply(const __u32 *payload, __u32 length, const void *end)
{
	const struct stamp *packet = (const void *)payload;
	__u32 zeros;

	if (length < sizeof(*packet)) {
		if (length < 24 || (const void *)(payload + 6) > end)
			return 0;
		return residence_fits(packet->time, packet->received, packet->error) &&
		       !is_constant(packet->received);
	}
	if ((const void *)(packet + 1) > end)
		return 0;
	if (likeness(packet) != LIKENESS_NONE)
		return 1;
	/* Authenticated: T3 at 16, error estimate at 24, T2 at 32. */
	if (!residence_fits(payload + 4, payload + 8, payload[6]))
		return 0;
	if (!is_constant(payload + 8))
		return 1;
	/* The sender's error estimate at 72, its TTL at 80, zeros around them up to 96. */
	if (length < 112 || (const void *)(payload + 28) > end)
		return 0;
	zeros = payload[18] >> 16 | payload[19] | payload[20] >> 8 | payload[21] | payload[22] |
		payload[23];
	return !zeros && payload[18] & 0xffff && payload[20] & 0xff;
}

/* Returns the 64-bit NTP timestamp of an instant of CLOCK_REALTIME in ns, as two words. */
static __always_inline void write_ntp(__u32 *words, __u64 at)
{
	__u64 seconds = at / 1000000000;
	__u64 fraction = (((at - seconds * 1000000000) << 32) + 500000000) / 1000000000;

	words[0] = htonl((__u32)(seconds + 2208988800ULL));
	words[1] = htonl((__u32)fraction);
}

/* Sum of the first 44 bytes. */
static __always_inline __u64 stamp_sum(const struct stamp *packet)
{
	const packet_word *words = (const packet_word *)packet;
	__u64 sum = 0;
	int i;

#pragma unroll
	for (i = 0; i < 11; i++)
		sum += words[i];
	return sum;
}

/*
 * Checks the TLVs from `offset` on, `length` bytes, and answers them if `write` is set; adds the
 * sums of replaced and new bytes to `old` and `new`. Returns whether the program answers all of
 * them: known types, whole, at most TLVS, at even offsets.
 */
static __always_inline int answer_tlvs(struct xdp_md *context, __u32 offset, __u32 length,
				       int write, __u64 *old, __u64 *new)
{
	void *data = (void *)(unsigned long)context->data;
	void *end = (void *)(unsigned long)context->data_end;
	int i;

	for (i = 0; i < TLVS; i++) {
		struct tlv *tlv = data + (offset & 0x3fff);
		__u32 *value = (__u32 *)(tlv + 1), whole, word;
		__u8 flags = 0;

		if (!length)
			return 1;
		if (length < sizeof(*tlv) || (void *)(tlv + 1) > end)
			return 0;
		whole = sizeof(*tlv) + ntohs(tlv->length);
		if (whole > length)
			return 0;
		if (tlv->type == TLV_NODE_CLOCK) {
			if (whole != 20 || (void *)(value + 4) > end ||
			    value[0] != NODE_CLOCK_MAGIC || !reflect.has_clock)
				return 0;
			if (write) {
				*old += (__u64)value[1] + value[2] + value[3];
				value[1] = *(const volatile __u32 *)&reflect.clock[0];
				value[2] = *(const volatile __u32 *)&reflect.clock[4];
				value[3] = *(const volatile __u32 *)&reflect.clock[8];
				*new += (__u64)value[1] + value[2] + value[3];
			}
		} else if (tlv->type == TLV_SOCKET_DROPS) {
			/* There is no socket. */
			flags = TLV_UNRECOGNISED;
		} else if (tlv->type == TLV_PATH) {
			if (whole < 8 || (void *)(value + 1) > end || value[0] != PATH_MAGIC)
				return 0;
		} else if (tlv->type != TLV_PADDING) {
			return 0;
		}
		if (write) {
			word = *(__u16 *)tlv;
			*old += word;
			tlv->flags = flags;
			*new += (word & 0xff00) | flags;
		}
		length -= whole;
		if (length && whole & 1)
			return 0;
		offset += whole;
	}
	return !length;
}

#endif
