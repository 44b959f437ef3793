/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs the sketch on a simulated ATmega328P (simavr) with a model of the W5500, whose sockets are sockets of
 * this machine, in the network namespace of this process.
 *
 *   simulate-uno dwell-uno.elf
 *
 * The processor runs at 16 MHz of real time, or slower if this machine cannot keep up. Prints what the sketch
 * prints. The model has the registers, commands and buffers that the sketch uses; the addresses of the
 * controller have no effect.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <simavr/avr_ioport.h>
#include <simavr/avr_spi.h>
#include <simavr/sim_avr.h>
#include <simavr/sim_elf.h>

#define FREQUENCY 16000000ull
/* Cycles between two looks at the sockets of this machine, and at its clock. */
#define POLL_CYCLES 1600
#define SELECT_PIN 2
#define SOCKETS 8
#define BUFFER 2048
#define VERSION 4

/* Registers and values, as in the data sheet. */
enum {
	MR = 0x00, VERSIONR = 0x39, MR_RESET = 0x80,
	SN_MR = 0x00, SN_CR = 0x01, SN_IR = 0x02, SN_SR = 0x03, SN_PORT = 0x04, SN_DIPR = 0x0c, SN_DPORT = 0x10,
	SN_TX_FSR = 0x20, SN_TX_RD = 0x22, SN_TX_WR = 0x24, SN_RX_RSR = 0x26, SN_RX_RD = 0x28,
	CR_OPEN = 0x01, CR_LISTEN = 0x02, CR_DISCONNECT = 0x08, CR_CLOSE = 0x10, CR_SEND = 0x20, CR_RECEIVE = 0x40,
	IR_SEND_OK = 0x10, IR_TIMEOUT = 0x08,
	SR_CLOSED = 0x00, SR_INIT = 0x13, SR_LISTEN = 0x14, SR_ESTABLISHED = 0x17, SR_CLOSE_WAIT = 0x1c, SR_UDP = 0x22,
	PROTOCOL_MASK = 0x0f, PROTOCOL_TCP = 1, PROTOCOL_UDP = 2,
};

struct chip_socket {
	uint8_t registers[0x30];
	uint8_t send[BUFFER], receive[BUFFER];
	/* End of the received bytes, and the position up to which the sketch has taken them. */
	uint16_t received, taken;
	/* Socket of this machine, or -1. */
	int fd;
};

static struct {
	uint8_t common[0x40];
	struct chip_socket sockets[SOCKETS];
	/* Listening socket of this machine, shared by the TCP sockets of one port, or -1. */
	int listener;
	/* Transfer: bytes since the selection, its address and control byte. */
	bool is_selected;
	unsigned position;
	uint16_t address;
	uint8_t control;
	avr_irq_t *input;
} chip;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint16_t get_u16(const uint8_t *bytes)
{
	return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

static void put_u16(uint8_t *bytes, unsigned value)
{
	bytes[0] = (uint8_t)(value >> 8);
	bytes[1] = (uint8_t)value;
}

static int open_socket(int kind, uint16_t port)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
	    bind(fd, (struct sockaddr *)&own, sizeof(own)) < 0)
		die("cannot open a socket");
	return fd;
}

static void close_socket(struct chip_socket *it)
{
	if (it->fd >= 0)
		close(it->fd);
	it->fd = -1;
	it->registers[SN_SR] = SR_CLOSED;
}

static void open_chip_socket(struct chip_socket *it)
{
	uint16_t port = get_u16(it->registers + SN_PORT);

	close_socket(it);
	it->received = it->taken = 0;
	memset(it->registers + SN_TX_FSR, 0, sizeof(it->registers) - SN_TX_FSR);
	if ((it->registers[SN_MR] & PROTOCOL_MASK) == PROTOCOL_UDP) {
		it->fd = open_socket(SOCK_DGRAM, port);
		it->registers[SN_SR] = SR_UDP;
	} else {
		it->registers[SN_SR] = SR_INIT;
	}
}

static void listen_chip_socket(struct chip_socket *it)
{
	if (it->registers[SN_SR] != SR_INIT)
		return;
	if (chip.listener < 0) {
		chip.listener = open_socket(SOCK_STREAM, get_u16(it->registers + SN_PORT));
		if (listen(chip.listener, SOCKETS) < 0)
			die("cannot listen");
	}
	it->registers[SN_SR] = SR_LISTEN;
}

static void send_message(struct chip_socket *it)
{
	uint16_t from = get_u16(it->registers + SN_TX_RD), to = get_u16(it->registers + SN_TX_WR);
	uint8_t message[BUFFER];
	size_t length = 0;
	struct sockaddr_in peer = { .sin_family = AF_INET };
	ssize_t sent;

	for (; from != to && length < BUFFER; from++)
		message[length++] = it->send[from % BUFFER];
	put_u16(it->registers + SN_TX_RD, to);
	if (it->registers[SN_SR] == SR_UDP) {
		memcpy(&peer.sin_addr, it->registers + SN_DIPR, 4);
		memcpy(&peer.sin_port, it->registers + SN_DPORT, 2);
		sent = sendto(it->fd, message, length, 0, (struct sockaddr *)&peer, sizeof(peer));
	} else {
		do
			sent = send(it->fd, message, length, MSG_NOSIGNAL);
		while (sent < 0 && errno == EAGAIN);
	}
	it->registers[SN_IR] |= sent == (ssize_t)length ? IR_SEND_OK : IR_TIMEOUT;
	if (sent != (ssize_t)length && it->registers[SN_SR] != SR_UDP)
		close_socket(it);
}

static void execute(struct chip_socket *it, uint8_t command)
{
	switch (command) {
	case CR_OPEN:
		open_chip_socket(it);
		break;
	case CR_LISTEN:
		listen_chip_socket(it);
		break;
	case CR_DISCONNECT:
	case CR_CLOSE:
		close_socket(it);
		break;
	case CR_SEND:
		send_message(it);
		break;
	case CR_RECEIVE:
		it->taken = get_u16(it->registers + SN_RX_RD);
		break;
	default:
		fprintf(stderr, "simulate-uno: unknown command 0x%02x\n", command);
		exit(1);
	}
}

/* Bytes that the sketch has not taken. */
static uint16_t waiting(const struct chip_socket *it)
{
	return (uint16_t)(it->received - it->taken);
}

static void append(struct chip_socket *it, const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		it->receive[it->received++ % BUFFER] = bytes[i];
}

static void receive_datagram(struct chip_socket *it)
{
	uint8_t bytes[BUFFER], header[8];
	struct sockaddr_in peer;
	socklen_t peer_length = sizeof(peer);
	ssize_t length = recvfrom(it->fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&peer, &peer_length);

	/* Like the chip, the model drops what it has no room for. */
	if (length < 0 || (size_t)length + sizeof(header) + waiting(it) > BUFFER)
		return;
	memcpy(header, &peer.sin_addr, 4);
	memcpy(header + 4, &peer.sin_port, 2);
	put_u16(header + 6, (unsigned)length);
	append(it, header, sizeof(header));
	append(it, bytes, (size_t)length);
}

static void receive_stream(struct chip_socket *it)
{
	uint8_t bytes[BUFFER];
	size_t room = BUFFER - waiting(it);
	ssize_t length = room > 0 ? recv(it->fd, bytes, room, 0) : 1;

	if (room == 0)
		return;
	if (length > 0)
		append(it, bytes, (size_t)length);
	else if (length == 0)
		it->registers[SN_SR] = SR_CLOSE_WAIT;
	else if (errno != EAGAIN)
		close_socket(it);
}

static void accept_connection(struct chip_socket *it)
{
	int yes = 1;
	int fd = chip.listener < 0 ? -1 : accept4(chip.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	it->fd = fd;
	it->registers[SN_SR] = SR_ESTABLISHED;
}

static void poll_sockets(void)
{
	for (int i = 0; i < SOCKETS; i++) {
		struct chip_socket *it = &chip.sockets[i];

		switch (it->registers[SN_SR]) {
		case SR_UDP:
			receive_datagram(it);
			break;
		case SR_ESTABLISHED:
			receive_stream(it);
			break;
		case SR_LISTEN:
			accept_connection(it);
			break;
		}
	}
}

static void reset(void)
{
	for (int i = 0; i < SOCKETS; i++) {
		close_socket(&chip.sockets[i]);
		memset(chip.sockets[i].registers, 0, sizeof(chip.sockets[i].registers));
	}
	memset(chip.common, 0, sizeof(chip.common));
	chip.common[VERSIONR] = VERSION;
}

static uint8_t read_register(struct chip_socket *it, uint16_t address)
{
	if (address >= sizeof(it->registers))
		return 0;
	put_u16(it->registers + SN_TX_FSR, BUFFER);
	put_u16(it->registers + SN_RX_RSR, waiting(it));
	return it->registers[address];
}

static void write_register(struct chip_socket *it, uint16_t address, uint8_t value)
{
	if (address == SN_CR)
		execute(it, value);
	else if (address == SN_IR)
		it->registers[SN_IR] &= (uint8_t)~value;
	else if (address < sizeof(it->registers))
		it->registers[address] = value;
}

/* Reads or writes one byte at the address of the transfer. */
static uint8_t transfer(uint8_t value)
{
	unsigned block = chip.control >> 3, kind = block & 3;
	bool writes = chip.control & 4;
	struct chip_socket *it = &chip.sockets[block >> 2];
	uint16_t at = chip.address++;

	if (block == 0) {
		if (at >= sizeof(chip.common))
			return 0;
		if (!writes)
			return chip.common[at];
		if (at == MR && value & MR_RESET)
			reset();
		else if (at != VERSIONR)
			chip.common[at] = value;
	} else if (kind == 1) {
		if (!writes)
			return read_register(it, at);
		write_register(it, at, value);
	} else if (kind == 2 && writes) {
		it->send[at % BUFFER] = value;
	} else if (kind == 3 && !writes) {
		return it->receive[at % BUFFER];
	}
	return 0;
}

/* A byte of the processor on SPI; the answer goes back in the same transfer. */
static void on_spi(struct avr_irq_t *irq, uint32_t value, void *context)
{
	uint8_t answer = 0;

	(void)irq;
	(void)context;
	if (!chip.is_selected)
		return;
	switch (chip.position++) {
	case 0:
		chip.address = (uint16_t)(value << 8);
		break;
	case 1:
		chip.address |= (uint8_t)value;
		break;
	case 2:
		chip.control = (uint8_t)value;
		break;
	default:
		answer = transfer((uint8_t)value);
	}
	avr_raise_irq(chip.input, answer);
}

static void on_select(struct avr_irq_t *irq, uint32_t value, void *context)
{
	(void)irq;
	(void)context;
	chip.is_selected = value == 0;
	chip.position = 0;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Waits until real time has reached the time of the processor. */
static void wait_for(int64_t until_ns)
{
	struct timespec until = { until_ns / 1000000000, until_ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

int main(int argc, char **argv)
{
	elf_firmware_t firmware = { 0 };
	avr_cycle_count_t next = 0;
	avr_t *avr;
	int64_t start;

	if (argc != 2) {
		fprintf(stderr, "usage: simulate-uno dwell-uno.elf\n");
		return 2;
	}
	if (elf_read_firmware(argv[1], &firmware) < 0) {
		fprintf(stderr, "simulate-uno: cannot read %s; build it: make firmware\n", argv[1]);
		return 1;
	}
	avr = avr_make_mcu_by_name("atmega328p");
	if (!avr)
		die("simavr has no atmega328p");
	avr_init(avr);
	firmware.frequency = FREQUENCY;
	avr_load_firmware(avr, &firmware);
	setvbuf(stdout, NULL, _IOLBF, 0);

	chip.listener = -1;
	for (int i = 0; i < SOCKETS; i++)
		chip.sockets[i].fd = -1;
	reset();
	chip.input = avr_io_getirq(avr, AVR_IOCTL_SPI_GETIRQ(0), SPI_IRQ_INPUT);
	avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_SPI_GETIRQ(0), SPI_IRQ_OUTPUT), on_spi, NULL);
	avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_IOPORT_GETIRQ('B'), SELECT_PIN), on_select, NULL);

	start = now_ns();
	for (;;) {
		int state = avr_run(avr);

		if (state == cpu_Done || state == cpu_Crashed) {
			fprintf(stderr, "simulate-uno: the processor stopped\n");
			return 1;
		}
		if (avr->cycle < next)
			continue;
		next = avr->cycle + POLL_CYCLES;
		poll_sockets();
		wait_for(start + (int64_t)(avr->cycle * 1000 / (FREQUENCY / 1000000)));
	}
}
