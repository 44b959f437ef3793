/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stateless STAMP session-reflector in unauthenticated mode (RFC 8762 section 4.3). T2 and T3 are times of
 * the device: NTP format, seconds since its start. TLVs (RFC 8972) are returned; all but padding are marked
 * as unrecognised.
 */
#ifndef DWELL_STAMP_H
#define DWELL_STAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Minimum length of a request. */
#define STAMP_LEN 44

/* Converts nanoseconds since the start of the device. */
uint64_t stamp_ntp(uint64_t nanoseconds);

/*
 * Turns a request into a reply without T3, in place; the length stays. Returns false, without a change, if
 * the packet is too short or is a reply. `t2` is in NTP format, `resolution` the step of the device's clock
 * in nanoseconds, `ttl` the TTL of the request.
 */
bool stamp_answer(uint8_t *packet, size_t length, uint64_t t2, uint32_t resolution, uint8_t ttl);

/* Writes T3, directly before the packet is sent. */
void stamp_finish(uint8_t *packet, uint64_t t3);

#endif
