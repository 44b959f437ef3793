/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "w5500.h"

#include <avr/io.h>

/* Pins of port B on the Uno: chip select of the shield (D10), MOSI, MISO and SCK. */
#define PIN_SELECT 2
#define PIN_MOSI 3
#define PIN_SCK 5

/* Control byte of a transfer: block, and whether it writes. */
#define BLOCK_COMMON 0
#define BLOCK_SOCKET(socket) (((socket) * 4 + 1) << 3)
#define BLOCK_SEND(socket) (((socket) * 4 + 2) << 3)
#define BLOCK_RECEIVE(socket) (((socket) * 4 + 3) << 3)
#define WRITE 0x04

/* Common registers. */
#define MR 0x0000
#define MR_RESET 0x80
#define GAR 0x0001
#define VERSIONR 0x0039
#define VERSION 4

/* Registers of a socket. */
#define SN_MR 0x0000
#define SN_MR_NO_DELAYED_ACK 0x20
#define SN_CR 0x0001
#define SN_CR_OPEN 0x01
#define SN_CR_LISTEN 0x02
#define SN_CR_DISCONNECT 0x08
#define SN_CR_CLOSE 0x10
#define SN_CR_SEND 0x20
#define SN_CR_RECEIVE 0x40
#define SN_IR 0x0002
#define SN_IR_SEND_OK 0x10
#define SN_IR_TIMEOUT 0x08
#define SN_SR 0x0003
#define SN_PORT 0x0004
#define SN_DIPR 0x000c
#define SN_TX_FSR 0x0020
#define SN_TX_WR 0x0024
#define SN_RX_RSR 0x0026
#define SN_RX_RD 0x0028

/* Maximum number of reads of the mode register until a reset is complete. */
#define MAX_RESET_READS 1000

/* Sockets, as bits, whose last message is being sent. */
static uint8_t sending;

static uint8_t transfer(uint8_t byte)
{
	SPDR = byte;
	while (!(SPSR & (1 << SPIF)))
		;
	return SPDR;
}

static void select(uint16_t address, uint8_t control)
{
	PORTB &= ~(1 << PIN_SELECT);
	transfer(address >> 8);
	transfer(address);
	transfer(control);
}

static void deselect(void)
{
	PORTB |= 1 << PIN_SELECT;
}

static void read_block(uint16_t address, uint8_t block, uint8_t *bytes, uint16_t length)
{
	select(address, block);
	while (length-- > 0)
		*bytes++ = transfer(0);
	deselect();
}

static void write_block(uint16_t address, uint8_t block, const uint8_t *bytes, uint16_t length)
{
	select(address, block | WRITE);
	while (length-- > 0)
		transfer(*bytes++);
	deselect();
}

static uint8_t read_u8(uint16_t address, uint8_t block)
{
	uint8_t value;

	read_block(address, block, &value, 1);
	return value;
}

static uint16_t read_u16(uint16_t address, uint8_t block)
{
	uint8_t value[2];

	read_block(address, block, value, 2);
	return (uint16_t)value[0] << 8 | value[1];
}

/* Reads a size that the controller may change between the two bytes: until two reads agree. */
static uint16_t read_size(uint16_t address, uint8_t block)
{
	uint16_t last = read_u16(address, block), next;

	while ((next = read_u16(address, block)) != last)
		last = next;
	return last;
}

static void write_u8(uint16_t address, uint8_t block, uint8_t value)
{
	write_block(address, block, &value, 1);
}

static void write_u16(uint16_t address, uint8_t block, uint16_t value)
{
	const uint8_t bytes[2] = { (uint8_t)(value >> 8), (uint8_t)value };

	write_block(address, block, bytes, 2);
}

/* Gives a command; the controller clears the register when it has taken it. */
static void command(uint8_t socket, uint8_t value)
{
	write_u8(SN_CR, BLOCK_SOCKET(socket), value);
	while (read_u8(SN_CR, BLOCK_SOCKET(socket)) != 0)
		;
}

bool w5500_begin(const struct w5500_addresses *addresses)
{
	uint16_t reads = 0;

	PORTB |= 1 << PIN_SELECT;
	DDRB |= 1 << PIN_SELECT | 1 << PIN_MOSI | 1 << PIN_SCK;
	/* Master, mode 0, half of the processor's clock: 8 MHz. */
	SPCR = 1 << SPE | 1 << MSTR;
	SPSR = 1 << SPI2X;
	if (read_u8(VERSIONR, BLOCK_COMMON) != VERSION)
		return false;
	write_u8(MR, BLOCK_COMMON, MR_RESET);
	while (read_u8(MR, BLOCK_COMMON) & MR_RESET)
		if (++reads == MAX_RESET_READS)
			return false;
	/* Gateway, netmask, MAC and IP address follow one another. */
	write_block(GAR, BLOCK_COMMON, (const uint8_t *)addresses, sizeof(*addresses));
	sending = 0;
	return true;
}

void w5500_open(uint8_t socket, enum w5500_protocol protocol, uint16_t port)
{
	uint8_t mode = protocol == W5500_OPEN_TCP ? protocol | SN_MR_NO_DELAYED_ACK : protocol;

	command(socket, SN_CR_CLOSE);
	sending &= ~(1 << socket);
	write_u8(SN_IR, BLOCK_SOCKET(socket), 0xff);
	write_u8(SN_MR, BLOCK_SOCKET(socket), mode);
	write_u16(SN_PORT, BLOCK_SOCKET(socket), port);
	command(socket, SN_CR_OPEN);
	if (protocol == W5500_OPEN_TCP)
		command(socket, SN_CR_LISTEN);
}

uint8_t w5500_state(uint8_t socket)
{
	return read_u8(SN_SR, BLOCK_SOCKET(socket));
}

void w5500_disconnect(uint8_t socket)
{
	command(socket, SN_CR_DISCONNECT);
}

uint16_t w5500_received(uint8_t socket)
{
	return read_size(SN_RX_RSR, BLOCK_SOCKET(socket));
}

void w5500_peek(uint8_t socket, uint16_t position, uint8_t *bytes, uint16_t length)
{
	uint16_t at = read_u16(SN_RX_RD, BLOCK_SOCKET(socket)) + position;

	/* The controller maps the address into the socket's memory. */
	read_block(at, BLOCK_RECEIVE(socket), bytes, length);
}

void w5500_take(uint8_t socket, uint16_t length)
{
	uint16_t at = read_u16(SN_RX_RD, BLOCK_SOCKET(socket));

	write_u16(SN_RX_RD, BLOCK_SOCKET(socket), at + length);
	command(socket, SN_CR_RECEIVE);
}

uint16_t w5500_sendable(uint8_t socket)
{
	if (sending & 1 << socket) {
		uint8_t events = read_u8(SN_IR, BLOCK_SOCKET(socket)) & (SN_IR_SEND_OK | SN_IR_TIMEOUT);

		if (events == 0)
			return 0;
		write_u8(SN_IR, BLOCK_SOCKET(socket), events);
		sending &= ~(1 << socket);
	}
	return read_size(SN_TX_FSR, BLOCK_SOCKET(socket));
}

void w5500_to(uint8_t socket, const uint8_t destination[6])
{
	write_block(SN_DIPR, BLOCK_SOCKET(socket), destination, 6);
}

void w5500_send(uint8_t socket, const uint8_t *bytes, uint16_t length)
{
	uint16_t at = read_u16(SN_TX_WR, BLOCK_SOCKET(socket));

	write_block(at, BLOCK_SEND(socket), bytes, length);
	write_u16(SN_TX_WR, BLOCK_SOCKET(socket), at + length);
	sending |= 1 << socket;
	command(socket, SN_CR_SEND);
}
