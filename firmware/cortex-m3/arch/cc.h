/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Compiler and platform, for lwIP. */
#ifndef DWELL_ARCH_CC_H
#define DWELL_ARCH_CC_H

#include <stdint.h>

#include "console.h"

#define LWIP_PLATFORM_DIAG(x)
#define LWIP_PLATFORM_ASSERT(message) restart("restart: lwIP: " message)

uint32_t random_number(void);
#define LWIP_RAND() random_number()

#endif
