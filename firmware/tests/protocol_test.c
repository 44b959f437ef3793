/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Tests the parsers of firmware/protocol on the host, with sanitizers: every valid request, cut at every length
 * and changed in every byte, and random bytes. Each input has a buffer of its own length, so that AddressSanitizer
 * sees any access beyond it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../protocol/roundtrip.h"
#include "../protocol/stamp.h"
#include "../protocol/text.h"

#define RANDOM_INPUTS 200000
#define MAX_INPUT 128

static int failures;

#define CHECK(condition)                                                             \
	do {                                                                         \
		if (!(condition)) {                                                  \
			printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
			failures++;                                                  \
		}                                                                    \
	} while (0)

static unsigned long replies;

/* Passes the bytes to every parser. */
static void parse(const uint8_t *bytes, size_t length)
{
	uint8_t reply[TEXT_TIMED_REPLY_LEN];
	struct text_stream stream = { 0 };
	size_t copied = length ? length : 1;
	uint8_t *exact = malloc(copied);

	if (!exact)
		abort();
	memcpy(exact, bytes, length);
	enum text_request request = text_datagram(exact, length);
	size_t written = text_reply(request, 1, 2, reply);

	CHECK(written == (request == TEXT_NONE ? 0 : request == TEXT_PLAIN ? TEXT_REPLY_LEN : TEXT_TIMED_REPLY_LEN));
	/* At most 4 bytes more than the request, so that a reply is no amplification. */
	CHECK(written <= length + 4);
	for (size_t i = 0; i < length; i++)
		replies += text_take(&stream, exact[i]) != TEXT_NONE;
	replies += text_piece_end(&stream) != TEXT_NONE;
	if (roundtrip_answer(exact, length)) {
		CHECK(length == ROUNDTRIP_LEN && request == TEXT_NONE);
		CHECK(!roundtrip_answer(exact, length));
	}
	memcpy(exact, bytes, length);
	if (stamp_answer(exact, length, 1, 40, 64)) {
		/* A request without an error estimate is not valid, so its reply is not recognised. */
		int is_valid = (exact[36] | exact[37]) != 0;

		CHECK(length >= STAMP_LEN);
		stamp_finish(exact, 2);
		CHECK(!stamp_answer(exact, length, 3, 40, 64) || !is_valid);
	}
	free(exact);
}

/* Cuts and changes a valid input. */
static void vary(const uint8_t *valid, size_t length)
{
	uint8_t bytes[MAX_INPUT];

	for (size_t cut = 0; cut <= length; cut++)
		parse(valid, cut);
	for (size_t at = 0; at < length; at++)
		for (int value = 0; value < 256; value++) {
			memcpy(bytes, valid, length);
			bytes[at] = (uint8_t)value;
			parse(bytes, length);
		}
}

static enum text_request classify(const char *text)
{
	return text_datagram((const uint8_t *)text, strlen(text));
}

/* Counts the requests in a stream that arrives in pieces, separated by '|'. */
static void count_stream(const char *pieces, int plain, int timed)
{
	struct text_stream stream = { 0 };
	int found[3] = { 0 };

	for (; *pieces; pieces++)
		found[*pieces == '|' ? text_piece_end(&stream) : text_take(&stream, (uint8_t)*pieces)]++;
	found[text_piece_end(&stream)]++;
	CHECK(found[TEXT_PLAIN] == plain);
	CHECK(found[TEXT_TIMED] == timed);
}

#define TIMES " 0123456789abcdef fedcba9876543210"

static void test_text(void)
{
	uint8_t reply[TEXT_TIMED_REPLY_LEN];

	CHECK(classify("request") == TEXT_PLAIN);
	CHECK(classify("request\r\n") == TEXT_PLAIN);
	CHECK(classify("request" TIMES) == TEXT_TIMED);
	CHECK(classify("request" TIMES "\n") == TEXT_TIMED);
	CHECK(classify("requests") == TEXT_NONE);
	CHECK(classify("request ") == TEXT_NONE);
	CHECK(classify("request" TIMES "0") == TEXT_NONE);
	CHECK(classify("acknowledge") == TEXT_NONE);
	CHECK(text_reply(TEXT_TIMED, 0x1234, 0xabcdef, reply) == TEXT_TIMED_REPLY_LEN);
	CHECK(memcmp(reply, "acknowledge 0000000000001234 0000000000abcdef", TEXT_TIMED_REPLY_LEN) == 0);

	count_stream("request", 1, 0);
	count_stream("requestrequest\nrequest\r\n", 3, 0);
	count_stream("req|uest|xxreqrequest", 2, 0);
	count_stream("request" TIMES "request" TIMES "\nrequest", 1, 2);
	count_stream("request 0123|456789abcdef fedcba9876543210", 0, 1);
	count_stream("request| 0123456789abcdef", 1, 0);
	count_stream("request request", 2, 0);
	count_stream("request 0123x request", 2, 0);
}

static void test_stamp(void)
{
	uint8_t packet[STAMP_LEN + 16] = { 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 1, 0xab, 0xcd };
	static const uint8_t tlvs[16] = { 0, 1, 0, 2, 9, 9, 0, 0xf0, 0, 2, 9, 9, 0, 3, 0, 1 };
	static const uint8_t t3[8] = { 0, 0, 0, 0, 0, 0, 0, 2 };

	memcpy(packet + STAMP_LEN, tlvs, sizeof(tlvs));
	CHECK(stamp_answer(packet, sizeof(packet), 1, 40, 63));
	stamp_finish(packet, 2);
	CHECK(packet[3] == 7 && memcmp(packet + 4, t3, 8) == 0);
	/* 40 ns are 171.8 * 2^-32 s. */
	CHECK(packet[12] == 0 && packet[13] == 172);
	CHECK(packet[14] == 0xab && packet[15] == 0xcd);
	CHECK(packet[23] == 1 && packet[27] == 7);
	CHECK(packet[28] == 1 && packet[35] == 8 && packet[36] == 0x80 && packet[37] == 1);
	CHECK(packet[40] == 63);
	/* Padding is known, the next TLV is not, the last is longer than the packet. */
	CHECK(packet[44] == 0 && packet[50] == 0x80 && packet[56] == 0x40);
	CHECK(stamp_ntp(0) == 0);
	CHECK(stamp_ntp(1500000000) == (1ull << 32) + (1ull << 31));
	CHECK(stamp_ntp(999999999) == 0xfffffffb);
}

int main(void)
{
	static const uint8_t message[ROUNDTRIP_LEN] = "01234567abcdefgh\x03\0\0\0REQ";
	uint8_t bytes[MAX_INPUT] = { 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 1, 0xab, 0xcd };

	test_text();
	test_stamp();
	vary(message, sizeof(message));
	vary((const uint8_t *)"request", 7);
	vary((const uint8_t *)"request" TIMES, TEXT_TIMED_REQUEST_LEN);
	vary(bytes, STAMP_LEN);
	bytes[STAMP_LEN + 1] = 1;
	bytes[STAMP_LEN + 3] = 4;
	vary(bytes, STAMP_LEN + 12);
	srand(29);
	for (long input = 0; input < RANDOM_INPUTS; input++) {
		size_t length = (size_t)(rand() % MAX_INPUT);

		for (size_t i = 0; i < length; i++)
			bytes[i] = (uint8_t)(rand() % 4 ? 0 : rand());
		parse(bytes, length);
	}
	printf("firmware protocols: %s, %lu requests in streams\n", failures ? "FAILED" : "ok", replies);
	return failures != 0;
}
