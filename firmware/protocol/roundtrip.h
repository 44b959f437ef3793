/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Round-trip message of Roedlach/Vock: 24 bytes, little-endian: i64 seconds, i64 nanoseconds (the
 * sender's clock), u32 id, "REQ\0" or "ACK\0". It has no room for the time of the device.
 */
#ifndef DWELL_ROUNDTRIP_H
#define DWELL_ROUNDTRIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROUNDTRIP_LEN 24

/* Turns a request into its reply, in place. Returns false, without a change, if it is not a request. */
bool roundtrip_answer(uint8_t *message, size_t length);

#endif
