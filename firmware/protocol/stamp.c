/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "stamp.h"

#include <string.h>

/* Offsets of a request, of which a reply has the same fields at the same places. */
#define TIMESTAMP_AT 4
#define ERROR_AT 12
/* Offsets of a reply. */
#define T2_AT 16
#define SENDER_AT 24
#define SENDER_ERROR_AT 36
#define TTL_AT 40

#define TLV_HEADER 4
#define TLV_PADDING 1
#define TLV_UNRECOGNISED 0x80
#define TLV_MALFORMED 0x40

#define NANOS_PER_SECOND 1000000000u

static uint64_t read_u64(const uint8_t *bytes)
{
	uint64_t value = 0;

	for (int i = 0; i < 8; i++)
		value = value << 8 | bytes[i];
	return value;
}

static void write_u64(uint8_t *bytes, uint64_t value)
{
	for (int i = 7; i >= 0; i--) {
		bytes[i] = (uint8_t)value;
		value >>= 8;
	}
}

uint64_t stamp_ntp(uint64_t nanoseconds)
{
	uint64_t seconds = nanoseconds / NANOS_PER_SECOND;
	uint64_t rest = nanoseconds % NANOS_PER_SECOND;

	return seconds << 32 | (rest << 32) / NANOS_PER_SECOND;
}

static bool is_zero(const uint8_t *packet, size_t from, size_t to)
{
	for (; from < to; from++)
		if (packet[from] != 0)
			return false;
	return true;
}

/*
 * Whether all fields fit a reply: a sender's error estimate, a TTL, zeros after both, and T3 less than a
 * second after T2. A sender has zeros in all of these.
 */
static bool is_reply(const uint8_t *packet)
{
	return read_u64(packet + TIMESTAMP_AT) - read_u64(packet + T2_AT) < (uint64_t)1 << 32 &&
	       !is_zero(packet, SENDER_ERROR_AT, SENDER_ERROR_AT + 2) && packet[TTL_AT] != 0 &&
	       is_zero(packet, SENDER_ERROR_AT + 2, TTL_AT) && is_zero(packet, TTL_AT + 1, STAMP_LEN);
}

static void answer_tlvs(uint8_t *area, size_t length)
{
	while (length >= TLV_HEADER) {
		size_t value = (size_t)area[2] << 8 | area[3];

		if (value > length - TLV_HEADER) {
			area[0] = TLV_MALFORMED;
			return;
		}
		area[0] = area[1] == TLV_PADDING ? 0 : TLV_UNRECOGNISED;
		area += TLV_HEADER + value;
		length -= TLV_HEADER + value;
	}
}

/* Error estimate of a clock that is not synchronised: multiplier and scale of 2^-32 s, multiplier not 0. */
static uint16_t error_estimate(uint32_t resolution)
{
	uint64_t multiplier = ((uint64_t)resolution << 32) / NANOS_PER_SECOND + 1;
	uint16_t scale = 0;

	while (multiplier > 0xff) {
		multiplier = (multiplier >> 1) + 1;
		scale++;
	}
	return (uint16_t)(scale << 8 | multiplier);
}

bool stamp_answer(uint8_t *packet, size_t length, uint64_t t2, uint32_t resolution, uint8_t ttl)
{
	uint16_t error = error_estimate(resolution);

	if (length < STAMP_LEN || is_reply(packet))
		return false;
	/* Sequence number, T1 and error estimate of the sender. */
	memmove(packet + SENDER_AT, packet, ERROR_AT + 2);
	packet[ERROR_AT] = (uint8_t)(error >> 8);
	packet[ERROR_AT + 1] = (uint8_t)error;
	memset(packet + TIMESTAMP_AT, 0, 8);
	write_u64(packet + T2_AT, t2);
	memset(packet + SENDER_ERROR_AT + 2, 0, STAMP_LEN - SENDER_ERROR_AT - 2);
	packet[TTL_AT] = ttl;
	answer_tlvs(packet + STAMP_LEN, length - STAMP_LEN);
	return true;
}

void stamp_finish(uint8_t *packet, uint64_t t3)
{
	write_u64(packet + TIMESTAMP_AT, t3);
}
