// SPDX-License-Identifier: Apache-2.0
// Services in C: one process asks, another answers (docs/guides/services.md). Requests and answers are arrays, as
// ab_send takes them and ab_receive returns them. Callers and servers of C, C++ and Python serve one another, and a
// request is executed at most once, whichever process ends.
//
//   ab_service* service;                                      /* a server; several may serve one name */
//   ab_request* request;
//   if (ab_open_service(broker, "invert", NULL, &service) != AB_OK) puts(ab_message());
//   while (ab_take(service, -1, &request) == AB_OK) {
//     if (ab_reply(request, &content, NULL) != AB_OK) puts(ab_message());
//     ab_drop_request(request);
//   }
//
//   ab_caller* caller;                                        /* in any other process */
//   ab_array* answer;
//   if (ab_open_caller(broker, "invert", &caller) != AB_OK) puts(ab_message());
//   if (ab_call(caller, &content, 1000, &answer) == AB_OK) ab_drop(answer);
//
// All functions are thread-safe. REQUIRES: a broker is disconnected only after its callers, services and requests are
// dropped.
#pragma once

#include <arraybridge/arraybridge.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Asks the servers of one service. One serves all threads of a process. */
typedef struct ab_caller ab_caller;
/* AB_INVALID_ARGUMENT: the name is empty, or has more than 128 bytes. */
AB_API ab_code ab_open_caller(ab_broker* broker, const char* service, ab_caller** caller);
/* Waits for the answer; less than 0: without a limit. A call needs no server yet. `content` has no metadata. Its array
 * of ab_empty is not copied, and not written any more. ab_info_of the answer tells who has answered.
 *
 * ab_reason of the errors:
 *   SERVER_GONE      AB_UNAVAILABLE: the server ended with the request in its hands, which it may have executed
 *   REQUEST_FAILED   AB_UNKNOWN: the server says that it has no result, and ab_message says why
 *   NOT_TAKEN        AB_DEADLINE_EXCEEDED: no server has got the request, and none will
 *   NOT_ANSWERED     AB_DEADLINE_EXCEEDED: a server has it, and sees it as cancelled
 *   CHANNEL_LOST     AB_UNAVAILABLE: the connection has ended, and the outcome is unknown; open another caller */
AB_API ab_code ab_call(ab_caller* caller, const ab_content* content, int64_t timeout_ms, ab_array** answer);

/* The items of one answer, which the server sends by ab_send_item. One thread takes them at a time. */
typedef struct ab_answers ab_answers;
/* Asks for an answer of several items, without waiting. `timeout_ms` is that of the whole answer. The arrays of
 * `content` must stay as they are until ab_next has returned for the first time. */
AB_API ab_code ab_call_items(ab_caller* caller, const ab_content* content, int64_t timeout_ms, ab_answers** answers);
/* Waits for the next item. AB_OUT_OF_RANGE, ANSWERS_ENDED: there is no further one. Errors of ab_call, after the items
 * that were sent before. */
AB_API ab_code ab_next(ab_answers* answers, ab_array** item);
/* Frees it; before its end the server sees the request as cancelled. NULL is nothing to do. REQUIRES: no call uses
 * it. */
AB_API void ab_drop_answers(ab_answers* answers);
/* NULL is nothing to do. REQUIRES: no call uses it, and its answers are dropped. */
AB_API void ab_drop_caller(ab_caller* caller);

/* One server of a service. */
typedef struct ab_service ab_service;

typedef struct ab_service_options {
  size_t size;    /* sizeof(ab_service_options) */
  int32_t retry;  /* 1: a request of a server that has ended goes to another one, which may execute it again */
  uint64_t queue; /* the number of requests that may wait, the same in all servers of a name; 0: 64 */
} ab_service_options;

/* `options` may be NULL. AB_INVALID_ARGUMENT: as of ab_open_caller. AB_FAILED_PRECONDITION, QUEUE: another server
 * states another `queue`. */
AB_API ab_code ab_open_service(ab_broker* broker, const char* service, const ab_service_options* options,
                               ab_service** opened);

/* A request in the hands of a server, which answers it once. */
typedef struct ab_request ab_request;
/* The next request. Waits for it; less than 0: without a limit. AB_DEADLINE_EXCEEDED, NO_REQUEST. AB_NOT_FOUND,
 * CHANNEL_NOT_OPEN: the service was closed here. */
AB_API ab_code ab_take(ab_service* service, int64_t timeout_ms, ab_request** request);
/* Ends it in order: requests that wait stay for other servers; callers of requests that it has get SERVER_GONE. Calls
 * that wait on it return. */
AB_API ab_code ab_close_service(ab_service* service);
/* Frees it, and closes it. NULL is nothing to do. REQUIRES: no call uses it. */
AB_API void ab_drop_service(ab_service* service);

/* Its arrays, read-only and not copied, which are the request's: valid until ab_drop_request. ab_info_of has the
 * process and the client that ask, and the structure. */
AB_API const ab_array* ab_value_of(const ab_request* request); /* NULL: NULL */

typedef struct ab_request_state {
  size_t size;       /* sizeof(ab_request_state) */
  int32_t cancelled; /* 1: no caller waits: its time is over, it has ended, or it has taken the request back */
  int64_t left_ms;   /* until the caller waits no longer; -1: no limit */
} ab_request_state;

/* Fills `state`, whose `size` is set. A server that works for long asks, and stops. May call the broker. */
AB_API ab_code ab_state_of(ab_request* request, ab_request_state* state);
/* Answers. `content` is as in ab_call. `waits`, which may be NULL: 0 if the caller waits no longer and the result was
 * dropped, else 1. AB_FAILED_PRECONDITION: REQUEST_ANSWERED, SERVICE_CLOSED. Errors of ab_send; the request is open
 * then. */
AB_API ab_code ab_reply(ab_request* request, const ab_content* content, int32_t* waits);
/* Sends one item of an answer to ab_call_items, and waits while the caller has eight that it has not taken. The answer
 * ends with ab_reply, which sends its last item, or with ab_end. `waits`: 0 also if the caller takes one answer alone;
 * it gets REQUEST_FAILED. Errors of ab_reply. */
AB_API ab_code ab_send_item(ab_request* request, const ab_content* content, int32_t* waits);
AB_API ab_code ab_end(ab_request* request, int32_t* waits);
/* Answers that there is no result, and why; at most 4096 bytes of it are sent. */
AB_API ab_code ab_fail(ab_request* request, const char* why, int32_t* waits);
/* Frees it. If it was not answered, its caller gets REQUEST_FAILED. NULL is nothing to do. */
AB_API void ab_drop_request(ab_request* request);

#ifdef __cplusplus
}
#endif
