/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Vector table and start of the program. */
#include <string.h>

#include "board.h"
#include "clock.h"
#include "console.h"
#include "ethernet.h"

extern uint32_t stack_end, data_load, data_start, data_end, bss_start, bss_end;

int main(void);

void restart(const char *reason)
{
	interrupts_disable();
	console_line(reason);
	SCB_AIRCR = SCB_AIRCR_RESET;
	for (;;)
		;
}

void reset_handler(void)
{
	memcpy(&data_start, &data_load, (size_t)((char *)&data_end - (char *)&data_start));
	memset(&bss_start, 0, (size_t)((char *)&bss_end - (char *)&bss_start));
	main();
	restart("restart: main returned");
}

static void fault_handler(void)
{
	restart("restart: fault");
}

static void unexpected_handler(void)
{
	restart("restart: unexpected interrupt");
}

#define VECTORS (16 + ETHERNET_IRQ + 1)

__attribute__((section(".vectors"), used)) static void *const vectors[VECTORS] = {
	[0] = &stack_end,
	[1] = (void *)reset_handler,
	[2] = (void *)unexpected_handler,
	[3 ... 6] = (void *)fault_handler,
	[7 ... 14] = (void *)unexpected_handler,
	[15] = (void *)clock_wrap_handler,
	[16 ... 16 + TIMER0_IRQ - 1] = (void *)unexpected_handler,
	[16 + TIMER0_IRQ] = (void *)clock_wakeup_handler,
	[16 + TIMER0_IRQ + 1 ... VECTORS - 2] = (void *)unexpected_handler,
	[16 + ETHERNET_IRQ] = (void *)ethernet_handler,
};
