/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "console.h"

#include "board.h"
#include "clock.h"

#define BAUD 115200u

void console_init(void)
{
	/* Divisor with 6 fractional bits, rounded. */
	const uint32_t divisor = (CLOCK_HZ * 8 / BAUD + 1) / 2;

	SYSCTL_RCGC1 |= SYSCTL_RCGC1_UART0;
	SYSCTL_RCGC2 |= SYSCTL_RCGC2_GPIOA;
	/* A peripheral may be used three cycles after its clock is enabled; a read takes longer. */
	(void)SYSCTL_RCGC2;
	(void)SYSCTL_RCGC2;
	GPIOA_AFSEL |= GPIOA_UART0_PINS;
	GPIOA_DEN |= GPIOA_UART0_PINS;
	UART0_IBRD = divisor >> 6;
	UART0_FBRD = divisor & 0x3f;
	UART0_LCRH = UART0_LCRH_8N1_FIFO;
	UART0_CTL = UART0_CTL_ENABLE;
}

static void put(char character)
{
	while (UART0_FR & UART0_FR_TX_FULL)
		;
	UART0_DR = (uint8_t)character;
}

void console_text(const char *text)
{
	while (*text)
		put(*text++);
}

void console_line(const char *text)
{
	console_text(text);
	console_text("\r\n");
}

void console_address(uint32_t address)
{
	for (int octet = 0; octet < 4; octet++) {
		uint32_t value = address >> 8 * octet & 0xff;

		if (octet > 0)
			put('.');
		if (value >= 100)
			put((char)('0' + value / 100));
		if (value >= 10)
			put((char)('0' + value / 10 % 10));
		put((char)('0' + value % 10));
	}
}
