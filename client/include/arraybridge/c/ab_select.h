// SPDX-License-Identifier: Apache-2.0
// Waiting in C for any of several channels and services. An ab_awaited receives one share, or one request, ahead, on a
// thread of its own. An ab_broker has room for 64 of them: others say AB_RESOURCE_EXHAUSTED, QUEUED_REQUESTS.
//
//   ab_awaited* sources[2];
//   size_t places[2], found = 0;
//   if (ab_await_channel(channel, &sources[0]) != AB_OK) puts(ab_message());
//   if (ab_await_service(service, &sources[1]) != AB_OK) puts(ab_message());
//   if (ab_select(sources, 2, 1000, places, &found) == AB_OK && found > 0 && places[0] == 1)
//     ab_try_take(sources[1], &request);
//
// All functions are thread-safe.
#pragma once

#include <arraybridge/c/ab_service.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ab_awaited ab_awaited;

/* Of the receiving end of a channel, which is not received from otherwise. AB_INVALID_ARGUMENT: it is a sender. */
AB_API ab_code ab_await_channel(ab_channel* channel, ab_awaited** awaited);
/* Of a server, which takes requests in no other way. One request more than were taken is in its hands. */
AB_API ab_code ab_await_service(ab_service* service, ab_awaited** awaited);
/* A descriptor that is readable while ab_try_receive or ab_try_take would return something, also an error: for poll and
 * for event loops. It belongs to `awaited`. NULL: -1. */
AB_API int ab_fileno(const ab_awaited* awaited);
/* As ab_receive, without waiting. AB_DEADLINE_EXCEEDED, CHANNEL_EMPTY: there is nothing yet. AB_INVALID_ARGUMENT: it is
 * of a service. */
AB_API ab_code ab_try_receive(ab_awaited* awaited, ab_array** array);
/* As ab_take, without waiting. AB_DEADLINE_EXCEEDED, NO_REQUEST: there is none yet. AB_INVALID_ARGUMENT: it is of a
 * channel. */
AB_API ab_code ab_try_take(ab_awaited* awaited, ab_request** request);
/* Waits until at least one of `sources` is ready; less than 0: without a limit. Writes the places of all that are ready
 * to `places`, which has room for `count`, and their number to `found`: 0 after the timeout. A channel whose stream has
 * ended, or that was closed, is ready, too. AB_INVALID_ARGUMENT: there are no sources. AB_CANCELLED: a signal handler
 * has run; nothing is lost. */
AB_API ab_code ab_select(ab_awaited* const* sources, size_t count, int64_t timeout_ms, size_t* places, size_t* found);
/* Frees it: what was received ahead and not taken is gone. The end of the channel is given up, and the service closed;
 * both still need a drop of their own. NULL is nothing to do. REQUIRES: no call uses it. */
AB_API void ab_drop_awaited(ab_awaited* awaited);

#ifdef __cplusplus
}
#endif
