// SPDX-License-Identifier: Apache-2.0
/* A server or a caller of a service, in C, which the tests of Python run beside servers and callers in Python.
 *
 *   service_program ADDRESS NAMESPACE serve NAME KIND FILE       a line to FILE for each request that it begins
 *   service_program ADDRESS NAMESPACE select NAME CHANNEL FILE   the same, and a line for each array of a channel
 *   service_program ADDRESS NAMESPACE items NAME FIRST LAST MS   the same, with answers of several items
 *   service_program ADDRESS NAMESPACE call NAME FIRST LAST MS    one call after the other; a line for each outcome
 *
 * Requests and answers are {"n": number, "x": array}, as in server.py. */
#define _POSIX_C_SOURCE 200112L
#include <arraybridge/c/ab_select.h>
#include <arraybridge/c/ab_service.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ELEMENTS = 4 };

static int failed(const char* what) {
  printf("%s: %s: %s\n", what, ab_reason(), ab_message());
  return 1;
}

static void pause_ms(long milliseconds) {
  const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static ab_view view_of(int64_t* numbers, const int64_t* shape) {
  const ab_view view = {sizeof view, numbers, 0, 64, 1, 1, shape, NULL, 1, 0, 0};
  return view;
}

static ab_content content_of(const ab_view* view, const char* structure) {
  const ab_content content = {sizeof content, view, 1, NULL, structure, strlen(structure), NULL, 0};
  return content;
}

static void describe(char* structure, size_t size, long long number) {
  snprintf(structure, size, "{\"d\":[[\"n\",{\"v\":%lld}],[\"x\",0]]}", number);
}

static long long number_in(const ab_array* array) {
  const char before[] = "[\"n\",{\"v\":";
  ab_info info = {0};
  char structure[256] = "";
  info.size = sizeof info;
  if (ab_info_of(array, &info) != AB_OK || info.structure_bytes >= sizeof structure) return -1;
  memcpy(structure, info.structure, info.structure_bytes);
  const char* found = strstr(structure, before);
  return found == NULL ? -1 : atoll(found + strlen(before));
}

static long long process_in(const ab_array* array) {
  ab_info info = {0};
  info.size = sizeof info;
  return ab_info_of(array, &info) == AB_OK ? (long long)info.sender_process : -1;
}

static int until_cancelled(ab_request* request, long long number) {
  ab_request_state state = {sizeof state, 0, 0};
  printf("holds %lld of %lld\n", number, process_in(ab_value_of(request)));
  while (ab_state_of(request, &state) == AB_OK && !state.cancelled) pause_ms(10);
  printf("cancelled %lld\n", number);
  return 0;
}

static int doubled(ab_request* request, long long number) {
  char structure[64];
  int64_t numbers[ELEMENTS];
  const int64_t shape[] = {ELEMENTS};
  int32_t waits = -1;
  ab_view x = {0};
  x.size = sizeof x;
  if (ab_view_of(ab_value_of(request), 0, &x) != AB_OK) return failed("ab_view_of");
  for (int i = 0; i < ELEMENTS; i++) numbers[i] = 2 * ((const int64_t*)x.data)[i];
  describe(structure, sizeof structure, number);
  const ab_view view = view_of(numbers, shape);
  const ab_content content = content_of(&view, structure);
  if (ab_reply(request, &content, &waits) != AB_OK) return failed("ab_reply");
  if (ab_reply(request, &content, &waits) != AB_FAILED_PRECONDITION || strcmp(ab_reason(), "REQUEST_ANSWERED") != 0) {
    return failed("a second ab_reply");
  }
  return 0;
}

/* As many items as the number says. */
static int items(ab_request* request, long long number) {
  const int64_t shape[] = {ELEMENTS};
  int32_t waits = 1;
  for (long long n = 0; n < number && waits == 1; n++) {
    char structure[64];
    int64_t numbers[ELEMENTS] = {n, n, n, n};
    describe(structure, sizeof structure, n);
    const ab_view view = view_of(numbers, shape);
    const ab_content content = content_of(&view, structure);
    if (ab_send_item(request, &content, &waits) != AB_OK) return failed("ab_send_item");
  }
  if (waits != 1) return printf("cancelled\n"), 0;
  return ab_end(request, &waits) == AB_OK ? 0 : failed("ab_end");
}

static int act(const char* kind, ab_request* request, FILE* record) {
  const long long number = number_in(ab_value_of(request));
  fprintf(record, "%lld %ld\n", number, (long)getpid());
  fflush(record);
  if (strcmp(kind, "silent") == 0) return 0;
  if (strcmp(kind, "fail") == 0) {
    char why[64];
    snprintf(why, sizeof why, "number %lld is not for me", number);
    return ab_fail(request, why, NULL) == AB_OK ? 0 : failed("ab_fail");
  }
  if (strstr(kind, "hold") != NULL) {
    printf("holds %lld\n", number);
    pause_ms(600000);
  }
  if (strcmp(kind, "cancel") == 0) return until_cancelled(request, number);
  if (strcmp(kind, "items") == 0) return items(request, number);
  return doubled(request, number);
}

static int serve(ab_broker* broker, const char* name, const char* kind, FILE* record) {
  const ab_service_options options = {sizeof options, strncmp(kind, "retry", 5) == 0, 0};
  ab_service* service;
  ab_request* request;
  if (ab_open_service(broker, name, &options, &service) != AB_OK) return failed("ab_open_service");
  printf("open %ld\n", (long)getpid());
  while (ab_take(service, -1, &request) == AB_OK) {
    if (act(kind, request, record) != 0) return 1;
    ab_drop_request(request);
  }
  return failed("ab_take");
}

/* Takes what is ready. 1: the channel has ended. */
static int take_ready(ab_awaited* channel, ab_awaited* service, int is_service, FILE* record) {
  ab_array* array;
  ab_request* request;
  if (is_service) {
    if (ab_try_take(service, &request) != AB_OK) return failed("ab_try_take");
    const int status = act("double", request, record);
    ab_drop_request(request);
    return status;
  }
  const ab_code code = ab_try_receive(channel, &array);
  if (code == AB_OUT_OF_RANGE) return printf("ended\n"), 1;
  if (code != AB_OK) return failed("ab_try_receive");
  printf("array of %lu\n", (unsigned long)ab_count(array));
  ab_drop(array);
  return 0;
}

static int select_both(ab_broker* broker, const char* name, const char* channel_name, FILE* record) {
  ab_service* service;
  ab_channel* channel;
  ab_awaited* sources[2];
  size_t places[2], found = 7;
  ab_array* array;
  ab_request* request;
  if (ab_open_service(broker, name, NULL, &service) != AB_OK) return failed("ab_open_service");
  if (ab_open_channel(broker, channel_name, AB_RECEIVER, NULL, &channel) != AB_OK) return failed("ab_open_channel");
  if (ab_await_channel(channel, &sources[0]) != AB_OK) return failed("ab_await_channel");
  if (ab_await_service(service, &sources[1]) != AB_OK) return failed("ab_await_service");
  if (ab_select(sources, 2, 0, places, &found) != AB_OK || found != 0) return failed("ab_select of nothing");
  if (ab_try_take(sources[1], &request) != AB_DEADLINE_EXCEEDED) return failed("ab_try_take of nothing");
  if (ab_try_receive(sources[0], &array) != AB_DEADLINE_EXCEEDED) return failed("ab_try_receive of nothing");
  if (ab_try_receive(sources[1], &array) != AB_INVALID_ARGUMENT) return failed("ab_try_receive of a service");
  if (ab_try_take(sources[0], &request) != AB_INVALID_ARGUMENT) return failed("ab_try_take of a channel");
  printf("open %ld\n", (long)getpid());
  while (ab_select(sources, 2, -1, places, &found) == AB_OK) {
    for (size_t i = 0; i < found; i++) {
      struct pollfd readable = {ab_fileno(sources[places[i]]), POLLIN, 0};
      if (poll(&readable, 1, 0) != 1) return failed("poll of a source that is ready");
      if (take_ready(sources[0], sources[1], places[i] == 1, record) == 0) continue;
      ab_drop_awaited(sources[0]);
      ab_drop_awaited(sources[1]);
      ab_drop_channel(channel);
      ab_drop_service(service);
      return 0;
    }
  }
  return failed("ab_select");
}

static void tell(const char* what, long long number, ab_array* array) {
  long long sum = 0;
  ab_view x = {0};
  x.size = sizeof x;
  if (ab_view_of(array, 0, &x) != AB_OK) exit(failed("ab_view_of"));
  for (int i = 0; i < ELEMENTS; i++) sum += ((const int64_t*)x.data)[i];
  printf("%s %lld %lld\n", what, number, sum);
  ab_drop(array);
}

/* An answer of several items; at most ten of them are taken. */
static void take_items(ab_caller* caller, const ab_content* content, long milliseconds) {
  ab_answers* answers;
  ab_array* item;
  int taken = 0;
  if (ab_call_items(caller, content, milliseconds, &answers) != AB_OK) exit(failed("ab_call_items"));
  while (taken < 10 && ab_next(answers, &item) == AB_OK) {
    tell("item", number_in(item), item);
    taken++;
  }
  if (taken < 10) printf("%s\n", ab_reason());
  ab_drop_answers(answers);
}

static int call(ab_broker* broker, const char* name, long long first, long long last, long milliseconds, int several) {
  ab_caller* caller;
  ab_array* answer;
  const int64_t shape[] = {ELEMENTS};
  if (ab_open_caller(broker, name, &caller) != AB_OK) return failed("ab_open_caller");
  for (long long number = first; number <= last; number++) {
    char structure[64];
    int64_t numbers[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) numbers[i] = number;
    describe(structure, sizeof structure, number);
    const ab_view view = view_of(numbers, shape);
    const ab_content content = content_of(&view, structure);
    if (several) {
      take_items(caller, &content, milliseconds);
    } else if (ab_call(caller, &content, milliseconds, &answer) != AB_OK) {
      printf("%s %lld %s\n", ab_reason(), number, ab_message());
    } else {
      tell("answer", number, answer);
    }
  }
  if (several) pause_ms(1000); /* what is cancelled is told to the server */
  ab_drop_caller(caller);
  return 0;
}

int main(int count, char** words) {
  ab_broker* broker;
  if (count < 6) return 64;
  setvbuf(stdout, NULL, _IOLBF, 0);
  const ab_options options = {sizeof options, words[1], words[2], "in-c", 0, NULL};
  if (ab_connect(&options, &broker) != AB_OK) return failed("ab_connect");
  const char* role = words[3];
  if (strcmp(role, "call") == 0 || strcmp(role, "items") == 0) {
    const int several = strcmp(role, "items") == 0;
    const int status = call(broker, words[4], atoll(words[5]), atoll(words[6]), atol(words[7]), several);
    ab_disconnect(broker);
    return status;
  }
  FILE* record = fopen(words[6], "a");
  if (record == NULL) return 2;
  const int status = (strcmp(role, "serve") == 0 ? serve : select_both)(broker, words[4], words[5], record);
  fclose(record);
  ab_disconnect(broker);
  return status;
}
