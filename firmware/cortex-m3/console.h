/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Lines of text on UART 0: 115,200 bit/s, 8N1. */
#ifndef DWELL_CONSOLE_H
#define DWELL_CONSOLE_H

#include <stdint.h>

/* Sets up the UART. */
void console_init(void);

/* Writes a text, waiting for room in the FIFO. */
void console_text(const char *text);

/* Writes a text and a line end. */
void console_line(const char *text);

/* Writes an IPv4 address, whose first octet is the least significant byte. */
void console_address(uint32_t address);

/* Prints the reason and resets the device. Does not return. */
void restart(const char *reason) __attribute__((noreturn));

#endif
