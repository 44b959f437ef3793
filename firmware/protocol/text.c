/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "text.h"

#include <string.h>

static const char REQUEST[] = "request";
static const char ACKNOWLEDGE[] = "acknowledge";

#define REQUEST_LEN (sizeof(REQUEST) - 1)
#define DIGITS 16
/* " " and 16 digits, twice. */
#define TIMES_LEN (2 * (1 + DIGITS))

static bool is_line_end(uint8_t byte)
{
	return byte == '\r' || byte == '\n' || byte == 0;
}

/* Whether the byte may be at this position after the word of a request with times. */
static bool fits_times(size_t at, uint8_t byte)
{
	if (at % (1 + DIGITS) == 0)
		return byte == ' ';
	return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
}

enum text_request text_datagram(const uint8_t *datagram, size_t length)
{
	enum text_request request = TEXT_PLAIN;
	size_t at = REQUEST_LEN;

	if (length < REQUEST_LEN || memcmp(datagram, REQUEST, REQUEST_LEN) != 0)
		return TEXT_NONE;
	if (length >= TEXT_TIMED_REQUEST_LEN && datagram[at] == ' ') {
		for (size_t i = 0; i < TIMES_LEN; i++)
			if (!fits_times(i, datagram[at + i]))
				return TEXT_NONE;
		at += TIMES_LEN;
		request = TEXT_TIMED;
	}
	for (; at < length; at++)
		if (!is_line_end(datagram[at]))
			return TEXT_NONE;
	return request;
}

static void write_time(uint64_t time, uint8_t *text)
{
	*text = ' ';
	for (int i = DIGITS; i > 0; i--) {
		text[i] = (uint8_t)"0123456789abcdef"[time & 15];
		time >>= 4;
	}
}

size_t text_reply(enum text_request request, uint64_t received, uint64_t sent, uint8_t *reply)
{
	if (request == TEXT_NONE)
		return 0;
	memcpy(reply, ACKNOWLEDGE, TEXT_REPLY_LEN);
	if (request == TEXT_PLAIN)
		return TEXT_REPLY_LEN;
	write_time(received, reply + TEXT_REPLY_LEN);
	write_time(sent, reply + TEXT_REPLY_LEN + 1 + DIGITS);
	return TEXT_TIMED_REPLY_LEN;
}

/* Takes a byte before the end of the word. */
static void take_word(struct text_stream *stream, uint8_t byte)
{
	/* The word has its first letter only once, so a mismatch restarts the match. */
	if (byte == (uint8_t)REQUEST[stream->word])
		stream->word++;
	else
		stream->word = byte == (uint8_t)REQUEST[0];
	if (stream->word == REQUEST_LEN) {
		stream->word = 0;
		stream->times = 1;
	}
}

enum text_request text_take(struct text_stream *stream, uint8_t byte)
{
	enum text_request complete = TEXT_NONE;

	if (stream->times != 0) {
		if (fits_times(stream->times - 1, byte)) {
			stream->times++;
			if (stream->times <= TIMES_LEN)
				return TEXT_NONE;
			stream->times = 0;
			return TEXT_TIMED;
		}
		/* The word had no times; the byte may begin the next one. */
		stream->times = 0;
		complete = TEXT_PLAIN;
	}
	take_word(stream, byte);
	return complete;
}

enum text_request text_piece_end(struct text_stream *stream)
{
	if (stream->times != 1)
		return TEXT_NONE;
	stream->times = 0;
	return TEXT_PLAIN;
}
