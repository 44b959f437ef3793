/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "configuration.h"

#include <string.h>

extern const struct configuration configuration_page;

static const struct configuration DEFAULTS = {
	.magic = { 'D', 'W', 'L', '1' },
	.address = { 192, 168, 1, 77 },
	.netmask = { 255, 255, 255, 0 },
	.gateway = { 0, 0, 0, 0 },
	.mac = { 0x02, 0x64, 0x77, 0x6c, 0x6d, 0x33 },
};

const struct configuration *configuration(void)
{
	const struct configuration *page = &configuration_page;

	/* The compiler must not assume what the page contains. */
	__asm__("" : "+r"(page));
	return memcmp(page->magic, DEFAULTS.magic, sizeof(page->magic)) == 0 ? page : &DEFAULTS;
}
