/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Clock of the device: SysTick, a 24-bit counter of the system clock, extended to 64 bits over its wrap
 * (every 671 ms). The watchdog's 32-bit counter runs from the same clock and shows how many wraps passed. So
 * a late interrupt loses no wrap, unless it is 171 s late.
 */
#ifndef DWELL_CLOCK_H
#define DWELL_CLOCK_H

#include <stdint.h>

/* Frequency of the system clock: the PLL's 200 MHz divided by 8. */
#define CLOCK_HZ 25000000u
/* Step of the clock in nanoseconds. */
#define CLOCK_RESOLUTION_NS (1000000000u / CLOCK_HZ)

/* Starts the PLL and the counters. */
void clock_init(void);

/* Returns nanoseconds since clock_init(). Can be called from interrupt handlers. */
uint64_t clock_now(void);

/* Interrupts the processor periodically from now on, so that its main loop runs. */
void clock_start_wakeups(void);

/* Handles the interrupt of a wake-up. */
void clock_wakeup_handler(void);

/* Handles the wrap of SysTick. */
void clock_wrap_handler(void);

#endif
