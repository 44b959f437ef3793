/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "roundtrip.h"

#include <string.h>

#define CONTROL_AT 20

bool roundtrip_answer(uint8_t *message, size_t length)
{
	if (length != ROUNDTRIP_LEN || memcmp(message + CONTROL_AT, "REQ", 4) != 0)
		return false;
	memcpy(message + CONTROL_AT, "ACK", 4);
	return true;
}
