/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Configuration of the device: the first 24 bytes of the last KiB of flash (address 0x3fc00). A debugger or
 * qemu's generic loader writes it. Without the magic number the defaults apply.
 */
#ifndef DWELL_CONFIGURATION_H
#define DWELL_CONFIGURATION_H

#include <stdint.h>

struct configuration {
	/* "DWL1". */
	uint8_t magic[4];
	uint8_t address[4];
	uint8_t netmask[4];
	/* Default gateway; 0.0.0.0: none. */
	uint8_t gateway[4];
	uint8_t mac[6];
	uint8_t reserved[2];
};

/* Returns the page in flash, or the defaults. */
const struct configuration *configuration(void);

#endif
