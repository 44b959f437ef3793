/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Request/acknowledge messages of Chung 2021, with an optional device time (docs/firmware.md):
 *
 *   request                                       acknowledge
 *   request 0000000000000000 0000000000000000     acknowledge RRRRRRRRRRRRRRRR TTTTTTTTTTTTTTTT
 *
 * R is the time of receipt and T the time of the reply, each 16 hexadecimal digits: nanoseconds since
 * the start of the device. A line end (CR, LF, NUL) may follow.
 */
#ifndef DWELL_TEXT_H
#define DWELL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Length of "acknowledge", and of the longest reply. */
#define TEXT_REPLY_LEN 11
#define TEXT_TIMED_REPLY_LEN 45
/* Length of a request with room for times, without a line end. */
#define TEXT_TIMED_REQUEST_LEN 41

enum text_request { TEXT_NONE, TEXT_PLAIN, TEXT_TIMED };

/* Classifies a whole datagram. */
enum text_request text_datagram(const uint8_t *datagram, size_t length);

/*
 * Writes the reply to a request and returns its length. `reply` has TEXT_TIMED_REPLY_LEN bytes. The times
 * are nanoseconds since the start of the device; a plain reply has none.
 */
size_t text_reply(enum text_request request, uint64_t received, uint64_t sent, uint8_t *reply);

/* Position in a stream of requests. All zeros: the start of a stream. */
struct text_stream {
	/* Matched bytes of the word. */
	uint8_t word;
	/* Matched bytes after a whole word, plus one; 0 before the end of the word. */
	uint8_t times;
};

/*
 * Takes the next byte of a stream. Returns the request that is complete now, TEXT_NONE if none is. Bytes
 * of no request are skipped.
 */
enum text_request text_take(struct text_stream *stream, uint8_t byte);

/*
 * Ends a piece of a stream: a segment, or all bytes that have arrived. Returns TEXT_PLAIN if the piece ended
 * with a whole word, which is then a complete request.
 */
enum text_request text_piece_end(struct text_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
