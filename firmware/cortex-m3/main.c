/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Start of the device, and its main loop. */
#include "board.h"
#include "clock.h"
#include "configuration.h"
#include "console.h"
#include "ethernet.h"
#include "lwip/init.h"
#include "lwip/netif.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"
#include "services.h"

/* lwIP's clock in milliseconds. */
uint32_t sys_now(void)
{
	return (uint32_t)(clock_now() / 1000000u);
}

/* Pseudorandom numbers for lwIP's sequence numbers and ports: xorshift, stirred by the clock. */
uint32_t random_number(void)
{
	static uint32_t state = 0x9e3779b9;

	state ^= (uint32_t)clock_now();
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	if (state == 0)
		state = 1;
	return state;
}

static ip4_addr_t address_of(const uint8_t octets[4])
{
	ip4_addr_t address;

	IP4_ADDR(&address, octets[0], octets[1], octets[2], octets[3]);
	return address;
}

int main(void)
{
	static struct netif netif;
	const struct configuration *page = configuration();
	ip4_addr_t address = address_of(page->address);
	ip4_addr_t netmask = address_of(page->netmask);
	ip4_addr_t gateway = address_of(page->gateway);

	clock_init();
	console_init();
	lwip_init();
	netif_add(&netif, &address, &netmask, &gateway, (void *)page->mac, ethernet_start, ethernet_input);
	netif_set_default(&netif);
	netif_set_up(&netif);
	services_start();
	clock_start_wakeups();
	console_text("dwell cortex-m3: ready at ");
	console_address(address.addr);
	console_line("");
	for (;;) {
		uint32_t state;

		while (ethernet_poll(&netif))
			sys_check_timeouts();
		sys_check_timeouts();
		/* A pending interrupt ends the wait: that of a frame, or of a wake-up, every 50 ms. */
		state = interrupts_disable();
		if (!ethernet_is_pending())
			__asm__ volatile("wfi");
		interrupts_restore(state);
	}
}
