/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "clock.h"

#include "board.h"

/* Period of SysTick in ticks: 2^24. */
#define PERIOD (SYSTICK_MAX + 1)
/* Maximum time between two reads of the watchdog that relate it to SysTick: 1 ms. */
#define MAX_BRACKET (CLOCK_HZ / 1000)
/* Time between wake-ups: a fifth of lwIP's shortest time-out, 250 ms. */
#define WAKEUP_TICKS (CLOCK_HZ / 20)
#define SYSDIV (200000000u / CLOCK_HZ - 1)

/* Ticks until the last wrap that was handled, and the watchdog's counter at that wrap. */
static uint64_t ticks_at_wrap;
static uint32_t watchdog_at_wrap;

static void pll_start(void)
{
	uint32_t rcc = SYSCTL_RCC;

	/* Run from the oscillator while the PLL starts. */
	rcc = (rcc | SYSCTL_RCC_BYPASS) & ~SYSCTL_RCC_USESYSDIV;
	SYSCTL_RCC = rcc;
	rcc &= ~(SYSCTL_RCC_PWRDN | SYSCTL_RCC_OSCSRC_MASK | 0xfu << SYSCTL_RCC_XTAL_SHIFT |
		 0xfu << SYSCTL_RCC_SYSDIV_SHIFT);
	rcc |= SYSCTL_RCC_XTAL_8MHZ << SYSCTL_RCC_XTAL_SHIFT | SYSDIV << SYSCTL_RCC_SYSDIV_SHIFT |
	       SYSCTL_RCC_USESYSDIV;
	SYSCTL_RCC = rcc;
	while (!(SYSCTL_RIS & SYSCTL_RIS_PLL_LOCKED))
		;
	SYSCTL_RCC = rcc & ~SYSCTL_RCC_BYPASS;
}

/* Returns ticks since the last wrap: 1 to PERIOD. The counter counts down and is 0 at the end. */
static uint32_t phase(void)
{
	return PERIOD - SYSTICK_VALUE;
}

/*
 * Returns the ticks from the last handled wrap to the last wrap, a multiple of PERIOD. The watchdog is read
 * after `passed`, the phase, so it differs from that multiple by the time between the two reads.
 */
static uint32_t wraps(uint32_t passed)
{
	uint32_t elapsed = watchdog_at_wrap - WATCHDOG_VALUE;

	return (elapsed - passed + PERIOD / 2) & ~(PERIOD - 1);
}

/* Finds the watchdog's counter at the last wrap of SysTick. */
static void watchdog_relate(void)
{
	uint32_t before, passed;

	do {
		before = WATCHDOG_VALUE;
		passed = phase();
	} while (before - WATCHDOG_VALUE > MAX_BRACKET);
	watchdog_at_wrap = before + passed;
}

void clock_init(void)
{
	pll_start();
	SYSCTL_RCGC0 |= SYSCTL_RCGC0_WATCHDOG;
	(void)SYSCTL_RCGC0;
	(void)SYSCTL_RCGC0;
	/* Its reset is not enabled, so the watchdog counts down and starts again. */
	WATCHDOG_LOAD = UINT32_MAX;
	WATCHDOG_CTL = WATCHDOG_CTL_COUNT;
	SYSTICK_LOAD = SYSTICK_MAX;
	SYSTICK_VALUE = 0;
	SYSTICK_CTRL = SYSTICK_CTRL_ENABLE | SYSTICK_CTRL_INTERRUPT | SYSTICK_CTRL_SYSTEM_CLOCK;
	/* The counter is 0 until the first tick. */
	while (SYSTICK_VALUE == 0)
		;
	watchdog_relate();
}

uint64_t clock_now(void)
{
	uint32_t state = interrupts_disable();
	uint32_t passed = phase();
	uint64_t ticks = ticks_at_wrap + wraps(passed) + passed;

	interrupts_restore(state);
	return ticks * CLOCK_RESOLUTION_NS;
}

void clock_wrap_handler(void)
{
	uint32_t state = interrupts_disable();
	uint32_t passed = wraps(phase());

	ticks_at_wrap += passed;
	watchdog_at_wrap -= passed;
	interrupts_restore(state);
}

void clock_start_wakeups(void)
{
	SYSCTL_RCGC1 |= SYSCTL_RCGC1_TIMER0;
	(void)SYSCTL_RCGC1;
	(void)SYSCTL_RCGC1;
	TIMER0_CTL = 0;
	TIMER0_CFG = TIMER0_CFG_32_BITS;
	TIMER0_TAMR = TIMER0_TAMR_PERIODIC;
	TIMER0_TAILR = WAKEUP_TICKS;
	TIMER0_IMR = TIMER0_INT_TIMEOUT;
	NVIC_ENABLE(TIMER0_IRQ / 32) = 1u << TIMER0_IRQ % 32;
	TIMER0_CTL = TIMER0_CTL_ENABLE;
}

void clock_wakeup_handler(void)
{
	TIMER0_ICR = TIMER0_INT_TIMEOUT;
}
