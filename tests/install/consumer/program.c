// SPDX-License-Identifier: Apache-2.0
/* program ADDRESS: every function of the C API, and what it refuses. Prints what went wrong, or "ok". */
#define _POSIX_C_SOURCE 200112L
#include <arraybridge/arraybridge.h>
#include <arraybridge/c/ab_select.h>
#include <arraybridge/c/ab_service.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char* what) {
  printf("%s: %s\n", what, ab_message());
  return 1;
}

#define EXPECT(condition) \
  if (!(condition)) return failed(#condition)

/* Whoever says nothing, or only some of it, gets what the header says instead. */
static int check_options(const char* address) {
  ab_broker* broker = NULL;
  ab_array* array = NULL;
  ab_options options = {sizeof options, address, "elsewhere", "in c", 0, ""};
  EXPECT(ab_connect(&options, NULL) == AB_INVALID_ARGUMENT);
  EXPECT(ab_connect(&options, &broker) == AB_OK);
  EXPECT(ab_get(broker, "from c", 0, &array) == AB_NOT_FOUND); /* it is in another namespace */
  ab_disconnect(broker);
  options.ns = "\xff";
  EXPECT(ab_connect(&options, &broker) == AB_OK && ab_get(broker, "from c", 0, &array) == AB_INVALID_ARGUMENT);
  EXPECT(strcmp(ab_message(), "a namespace must be UTF-8, not '\\xff'") == 0);
  ab_disconnect(broker);
  options.ns = "elsewhere";
  options.size = offsetof(ab_options, token) - 1; /* of no header that ever was */
  EXPECT(ab_connect(&options, &broker) == AB_INVALID_ARGUMENT);
  EXPECT(strstr(ab_message(), "options.size") != NULL);

  EXPECT(setenv("ARRAYBRIDGE_ADDRESS", address, 1) == 0);
  EXPECT(ab_connect(NULL, &broker) == AB_OK && ab_get(broker, "from c", 0, &array) == AB_OK);
  ab_drop(array);
  ab_disconnect(broker);
  EXPECT(setenv("ARRAYBRIDGE_ADDRESS", "/nowhere", 1) == 0);
  EXPECT(ab_connect(NULL, &broker) == AB_OK && ab_get(broker, "from c", 0, &array) == AB_UNAVAILABLE);
  ab_disconnect(broker);
  options.size = sizeof options;
  options.ns = options.client = NULL;
  EXPECT(ab_connect(&options, &broker) == AB_OK && ab_get(broker, "from c", 0, &array) == AB_OK);
  ab_drop(array);
  ab_disconnect(broker);
  return 0;
}

/* What is no array, or has no name, is refused before anything is done. */
static int check_refusals(ab_broker* broker, ab_view good) {
  ab_view view = good;
  ab_array* array = NULL;
  EXPECT(ab_put(broker, "x", &good, 0) == AB_OK && strcmp(ab_message(), "") == 0);
  EXPECT(ab_put(broker, NULL, &good, 0) == AB_INVALID_ARGUMENT);
  EXPECT(ab_put(broker, "x", NULL, 1) == AB_INVALID_ARGUMENT);
  view.size = sizeof view - 1;
  EXPECT(ab_put(broker, "x", &view, 1) == AB_INVALID_ARGUMENT && strstr(ab_message(), "view.size") != NULL);
  EXPECT(ab_empty(broker, &view, &array) == AB_INVALID_ARGUMENT);
  view = good;
  view.shape = NULL;
  EXPECT(ab_put(broker, "x", &view, 1) == AB_INVALID_ARGUMENT);
  EXPECT(ab_empty(broker, &view, &array) == AB_INVALID_ARGUMENT);
  view = good;
  view.rank = 65;
  EXPECT(ab_put(broker, "x", &view, 1) == AB_INVALID_ARGUMENT);
  EXPECT(ab_empty(broker, &view, &array) == AB_INVALID_ARGUMENT);
  EXPECT(ab_empty(broker, &good, &array) == AB_OK);
  EXPECT(ab_publish(broker, array, NULL, 0) == AB_INVALID_ARGUMENT);
  EXPECT(ab_publish(broker, array, "x", 0) == AB_ALREADY_EXISTS);
  EXPECT(ab_publish(broker, array, "x", 1) == AB_OK);
  ab_drop(array);
  EXPECT(ab_withdraw(broker, NULL) == AB_INVALID_ARGUMENT);
  int32_t done = 7;
  EXPECT(ab_outcome(broker, 0, NULL) == AB_INVALID_ARGUMENT);
  EXPECT(ab_get(broker, "never there", 1, &array) == AB_DEADLINE_EXCEEDED);
  EXPECT(ab_outcome(broker, 0, &done) == AB_OK && done == 0);
  return 0;
}

/* NULL for a handle, or for the place of an answer, is told and is no crash; and no message is of an earlier call. */
static int check_nulls(ab_broker* broker, ab_view good) {
  ab_content content = {sizeof content, &good, 1, NULL, NULL, 0, NULL, 0};
  ab_array* array = NULL;
  ab_channel* channel = NULL;
  int32_t done = 0;
  EXPECT(ab_put(NULL, "x", &good, 1) == AB_INVALID_ARGUMENT && strcmp(ab_message(), "broker is NULL") == 0);
  EXPECT(ab_empty(NULL, &good, &array) == AB_INVALID_ARGUMENT);
  EXPECT(ab_empty(broker, &good, NULL) == AB_INVALID_ARGUMENT && strcmp(ab_message(), "array is NULL") == 0);
  EXPECT(ab_publish(broker, NULL, "x", 1) == AB_INVALID_ARGUMENT);
  EXPECT(ab_get(NULL, "x", 0, &array) == AB_INVALID_ARGUMENT && ab_get(broker, "x", 0, NULL) == AB_INVALID_ARGUMENT);
  EXPECT(ab_put_content(NULL, "x", &content, 1) == AB_INVALID_ARGUMENT);
  EXPECT(ab_put_content(broker, "x", NULL, 1) == AB_INVALID_ARGUMENT);
  EXPECT(ab_open_channel(NULL, "x", AB_SENDER, NULL, &channel) == AB_INVALID_ARGUMENT);
  EXPECT(ab_send(NULL, &content, 0) == AB_INVALID_ARGUMENT && ab_receive(NULL, 0, &array) == AB_INVALID_ARGUMENT);
  EXPECT(ab_close_channel(NULL) == AB_INVALID_ARGUMENT && strcmp(ab_message(), "channel is NULL") == 0);
  EXPECT(ab_view_of(NULL, 0, &good) == AB_INVALID_ARGUMENT && ab_count(NULL) == 0);
  EXPECT(ab_withdraw(NULL, "x") == AB_INVALID_ARGUMENT && ab_outcome(NULL, 0, &done) == AB_INVALID_ARGUMENT);
  content.metadata_bytes = (size_t)1 << 60;
  EXPECT(ab_put_content(broker, "x", &content, 1) == AB_INVALID_ARGUMENT);
  EXPECT(strcmp(ab_message(), "content.metadata is NULL") == 0);
  content.metadata = "said";
  EXPECT(ab_put_content(broker, "x", &content, 1) == AB_INVALID_ARGUMENT);
  EXPECT(strstr(ab_message(), "content.metadata has 1152921504606846976 bytes") != NULL);
  return 0;
}

/* A relay passes on the bytes that it got or received; memory of ab_empty is copied if it is given as views. */
static int check_relay(ab_broker* broker, ab_view good) {
  ab_content content = {sizeof content, &good, 1, NULL, NULL, 0, NULL, 0};
  ab_view got = {0}, seen = {0};
  ab_array *array = NULL, *again = NULL;
  ab_channel *sends = NULL, *receives = NULL;
  got.size = seen.size = sizeof got;
  EXPECT(ab_put(broker, "first", &good, 0) == AB_OK && ab_get(broker, "first", 0, &array) == AB_OK);
  EXPECT(ab_view_of(array, 0, &got) == AB_OK && ab_put(broker, "second", &got, 0) == AB_OK);
  EXPECT(ab_get(broker, "second", 0, &again) == AB_OK && ab_view_of(again, 0, &seen) == AB_OK);
  EXPECT(seen.data == got.data);
  ab_drop(again);
  content.views = NULL, content.count = 0, content.array = array;
  EXPECT(ab_put_content(broker, "third", &content, 0) == AB_OK && ab_get(broker, "third", 0, &again) == AB_OK);
  EXPECT(ab_view_of(again, 0, &seen) == AB_OK && seen.data == got.data);
  ab_drop(again);
  EXPECT(ab_open_channel(broker, "relayed", AB_RECEIVER, NULL, &receives) == AB_OK);
  EXPECT(ab_open_channel(broker, "relayed", AB_SENDER, NULL, &sends) == AB_OK);
  EXPECT(ab_send(sends, &content, 1000) == AB_OK && ab_receive(receives, 1000, &again) == AB_OK);
  EXPECT(ab_view_of(again, 0, &seen) == AB_OK && seen.data == got.data);
  ab_drop(array);
  content.array = again;
  EXPECT(ab_send(sends, &content, 1000) == AB_OK && ab_receive(receives, 1000, &array) == AB_OK);
  EXPECT(ab_view_of(array, 0, &seen) == AB_OK && seen.data == got.data && memcmp(seen.data, good.data, 24) == 0);
  ab_drop(array);
  ab_drop(again);
  EXPECT(ab_empty(broker, &good, &array) == AB_OK && ab_view_of(array, 0, &got) == AB_OK);
  memset(got.data, 1, 24);
  content.array = NULL, content.views = &got, content.count = 1;
  EXPECT(ab_send(sends, &content, 1000) == AB_OK);
  memset(got.data, 2, 24);
  EXPECT(ab_receive(receives, 1000, &again) == AB_OK && ab_view_of(again, 0, &seen) == AB_OK);
  EXPECT(((const unsigned char*)seen.data)[0] == 1 && ab_publish(broker, array, "first", 1) == AB_OK);
  ab_drop(array);
  ab_drop(again);
  ab_drop_channel(sends);
  ab_drop_channel(receives);
  EXPECT(ab_withdraw(broker, "first") == AB_OK && ab_withdraw(broker, "second") == AB_OK);
  EXPECT(ab_withdraw(broker, "third") == AB_OK);
  return 0;
}

/* Trees and bytes of the user, by name and through a channel. */
static int check_channels(ab_broker* broker, ab_view good) {
  ab_view two[2] = {good, good};
  ab_content content = {sizeof content, two, 2, NULL, "tree", 4, "said", 4};
  ab_info info = {sizeof info, NULL, 0, NULL, 0, NULL, 0, 0, 0, 0, 0, NULL, NULL, 0};
  ab_array* array = NULL;
  ab_channel* sends = NULL;
  ab_channel* receives = NULL;
  EXPECT(ab_put_content(broker, "content", &content, 0) == AB_OK);
  EXPECT(ab_put_content(broker, "content", &content, 0) == AB_ALREADY_EXISTS && strcmp(ab_reason(), "NAME_TAKEN") == 0);
  EXPECT(ab_get(broker, "content", 0, &array) == AB_OK && ab_count(array) == 2);
  EXPECT(ab_info_of(array, NULL) == AB_INVALID_ARGUMENT && ab_info_of(array, &info) == AB_OK);
  EXPECT(info.generation > 0 && info.sequence == 0 && strcmp(info.name, "content") == 0);
  EXPECT(info.metadata_bytes == 4 && memcmp(info.metadata, "said", 4) == 0);
  EXPECT(info.structure_bytes == 4 && memcmp(info.structure, "tree", 4) == 0);
  ab_drop(array);

  ab_channel_options options = {sizeof options, 2, AB_QUEUE, 0, 0, 0};
  EXPECT(ab_open_channel(broker, "frames", 3, &options, &sends) == AB_INVALID_ARGUMENT);
  EXPECT(ab_open_channel(broker, "frames", AB_SENDER, &options, &sends) == AB_OK);
  options.mode = AB_LATEST;
  EXPECT(ab_open_channel(broker, "frames", AB_RECEIVER, &options, &receives) != AB_OK);
  EXPECT(ab_open_channel(broker, "frames", AB_RECEIVER, NULL, &receives) == AB_OK);
  EXPECT(ab_receive(receives, 0, &array) == AB_DEADLINE_EXCEEDED && strcmp(ab_reason(), "CHANNEL_EMPTY") == 0);
  /* A name that no message can have costs a program nothing: the channel stays open. */
  ab_channel* none = NULL;
  EXPECT(ab_put(broker, "\xff", &good, 0) == AB_INVALID_ARGUMENT && strcmp(ab_reason(), "BAD_NAME") == 0);
  EXPECT(strcmp(ab_message(), "a share's name must be UTF-8, not '\\xff'") == 0);
  EXPECT(ab_put_content(broker, "\xff", &content, 0) == AB_INVALID_ARGUMENT);
  EXPECT(ab_get(broker, "\xff", 0, &array) == AB_INVALID_ARGUMENT &&
         ab_withdraw(broker, "\xff") == AB_INVALID_ARGUMENT);
  EXPECT(ab_open_channel(broker, "\xff", AB_SENDER, NULL, &none) == AB_INVALID_ARGUMENT);
  EXPECT(ab_open_bundle(broker, "\xff", 0, &array) == AB_INVALID_ARGUMENT);
  EXPECT(ab_send(sends, &content, 0) == AB_OK && ab_send(sends, &content, 0) == AB_OK);
  EXPECT(ab_send(sends, &content, 0) == AB_DEADLINE_EXCEEDED && strcmp(ab_reason(), "CHANNEL_FULL") == 0);
  EXPECT(ab_receive(receives, 1000, &array) == AB_OK && ab_count(array) == 2 && ab_info_of(array, &info) == AB_OK);
  EXPECT(info.sequence == 1 && info.stream == 1 && info.sent_ns > 0 && info.generation == 0);
  EXPECT(memcmp(info.metadata, "said", 4) == 0);
  ab_drop(array);
  EXPECT(ab_receive(receives, 1000, &array) == AB_OK);
  ab_drop(array);

  ab_array* born = NULL;
  ab_content of_array = {sizeof of_array, NULL, 0, NULL, NULL, 0, NULL, 0};
  EXPECT(ab_send(sends, &of_array, 0) == AB_INVALID_ARGUMENT && strstr(ab_message(), "no arrays") != NULL);
  EXPECT(ab_empty(broker, &good, &born) == AB_OK);
  of_array.array = born;
  EXPECT(ab_info_of(born, &info) == AB_INVALID_ARGUMENT);
  EXPECT(ab_send(sends, &of_array, 1000) == AB_OK);
  ab_drop(born);
  EXPECT(ab_receive(receives, 1000, &array) == AB_OK && ab_count(array) == 1 && ab_info_of(array, &info) == AB_OK);
  EXPECT(info.sequence == 3);
  ab_drop(array);
  EXPECT(ab_close_channel(sends) == AB_OK);
  EXPECT(ab_receive(receives, 1000, &array) == AB_OUT_OF_RANGE && strcmp(ab_reason(), "CHANNEL_ENDED") == 0);
  ab_drop_channel(sends);
  ab_drop_channel(receives);
  ab_drop_channel(NULL);
  EXPECT(ab_withdraw(broker, "content") == AB_OK);
  return 0;
}

/* Many arrays of one share, by name. */
static int check_bundles(ab_broker* broker, ab_view good) {
  ab_view scalar = good;
  scalar.rank = 0, scalar.shape = NULL;
  ab_entry entries[3] = {{sizeof(ab_entry), "w", AB_PARAMETER, NULL, &good},
                         {sizeof(ab_entry), "step", AB_BUFFER, NULL, &scalar},
                         {sizeof(ab_entry), "head", AB_PARAMETER, "w", &good}};
  ab_entry entry = {sizeof entry, NULL, 0, NULL, NULL};
  ab_info info = {sizeof info, NULL, 0, NULL, 0, NULL, 0, 0, 0, 0, 0, NULL, NULL, 0};
  ab_view seen = {0};
  ab_array* bundle = NULL;
  size_t index = 7;
  seen.size = sizeof seen;
  EXPECT(ab_empty_bundle(broker, NULL, 3, NULL, 0, &bundle) == AB_INVALID_ARGUMENT);
  EXPECT(ab_empty_bundle(broker, entries, 3, NULL, 0, NULL) == AB_INVALID_ARGUMENT);
  entries[1].name = "w";
  EXPECT(ab_empty_bundle(broker, entries, 3, NULL, 0, &bundle) == AB_INVALID_ARGUMENT);
  EXPECT(strcmp(ab_reason(), "INVALID_BUNDLE") == 0);
  entries[1].name = "step", entries[1].kind = 3;
  EXPECT(ab_empty_bundle(broker, entries, 3, NULL, 0, &bundle) == AB_INVALID_ARGUMENT);
  EXPECT(strstr(ab_message(), "entries[1]: kind 3") != NULL);
  entries[1].kind = AB_BUFFER, entries[1].view = NULL;
  EXPECT(ab_empty_bundle(broker, entries, 3, NULL, 0, &bundle) == AB_INVALID_ARGUMENT);
  entries[1].view = &scalar, entries[2].size = 1;
  EXPECT(ab_empty_bundle(broker, entries, 3, NULL, 0, &bundle) == AB_INVALID_ARGUMENT);
  entries[2].size = sizeof(ab_entry);
  EXPECT(ab_empty_bundle(broker, entries, 3, "of c", 4, &bundle) == AB_OK && ab_count(bundle) == 3);
  EXPECT(ab_index_of(bundle, "w", &index) == AB_OK && index == 2);
  EXPECT(ab_view_of(bundle, index, &seen) == AB_OK && !seen.read_only && seen.rank == 2);
  memcpy(seen.data, good.data, 24);
  EXPECT(ab_info_of(bundle, &info) == AB_INVALID_ARGUMENT);
  EXPECT(ab_publish(broker, bundle, "bundle", 0) == AB_OK);
  ab_drop(bundle);

  EXPECT(ab_open_bundle(broker, "x", 0, &bundle) == AB_INVALID_ARGUMENT && strcmp(ab_reason(), "NOT_A_BUNDLE") == 0);
  EXPECT(ab_open_bundle(broker, "nowhere", 0, &bundle) == AB_NOT_FOUND);
  EXPECT(ab_open_bundle(broker, NULL, 0, &bundle) == AB_INVALID_ARGUMENT);
  EXPECT(ab_open_bundle(broker, "bundle", 0, &bundle) == AB_OK && ab_count(bundle) == 3);
  EXPECT(ab_index_of(bundle, "absent", &index) == AB_NOT_FOUND);
  EXPECT(ab_index_of(bundle, "head", &index) == AB_OK && index == 0);
  EXPECT(ab_entry_of(bundle, index, &entry) == AB_OK && strcmp(entry.name, "head") == 0);
  EXPECT(entry.kind == AB_PARAMETER && entry.tied_to != NULL && strcmp(entry.tied_to, "w") == 0);
  EXPECT(ab_entry_of(bundle, 1, &entry) == AB_OK && entry.kind == AB_BUFFER && entry.tied_to == NULL);
  EXPECT(ab_entry_of(bundle, 3, &entry) == AB_OUT_OF_RANGE);
  entry.size = 0;
  EXPECT(ab_entry_of(bundle, 1, &entry) == AB_INVALID_ARGUMENT);
  EXPECT(ab_view_of(bundle, 0, &seen) == AB_OK && seen.read_only && memcmp(seen.data, good.data, 24) == 0);
  EXPECT(ab_view_of(bundle, 3, &seen) == AB_INVALID_ARGUMENT);
  EXPECT(ab_info_of(bundle, &info) == AB_OK && info.fingerprint_bytes == 4);
  EXPECT(memcmp(info.fingerprint, "of c", 4) == 0 && strcmp(info.name, "bundle") == 0);
  info.size = offsetof(ab_info, fingerprint); /* of the first header */
  info.fingerprint_bytes = 7;
  EXPECT(ab_info_of(bundle, &info) == AB_OK && info.fingerprint_bytes == 7);
  EXPECT(ab_index_of(bundle, NULL, &index) == AB_INVALID_ARGUMENT);
  EXPECT(ab_index_of(bundle, "w", NULL) == AB_INVALID_ARGUMENT);
  ab_content content = {sizeof content, NULL, 0, bundle, NULL, 0, NULL, 0};
  EXPECT(ab_put_content(broker, "bundle too", &content, 0) == AB_OK);
  ab_drop(bundle);
  EXPECT(ab_open_bundle(broker, "bundle too", 0, &bundle) == AB_OK && ab_info_of(bundle, &info) == AB_OK);
  EXPECT(info.structure_bytes > 0 && ab_withdraw(broker, "bundle too") == AB_OK);
  ab_drop(bundle);
  EXPECT(ab_get(broker, "bundle", 0, &bundle) == AB_OK && ab_count(bundle) == 2);
  EXPECT(ab_index_of(bundle, "w", &index) == AB_INVALID_ARGUMENT);
  EXPECT(ab_entry_of(bundle, 0, &entry) == AB_INVALID_ARGUMENT);
  ab_drop(bundle);
  EXPECT(ab_withdraw(broker, "bundle") == AB_OK);
  return 0;
}

/* What services and ab_select refuse; what they do is in the tests of Python. */
static int check_services(ab_broker* broker, ab_view good) {
  ab_content content = {sizeof content, &good, 1, NULL, NULL, 0, NULL, 0};
  ab_service_options options = {sizeof options, 0, 3};
  ab_request_state state = {sizeof state, 0, 0};
  ab_caller* caller = NULL;
  ab_service *service = NULL, *other = NULL;
  ab_request* request = NULL;
  ab_array* answer = NULL;
  EXPECT(ab_open_caller(NULL, "s", &caller) == AB_INVALID_ARGUMENT && strcmp(ab_message(), "broker is NULL") == 0);
  EXPECT(ab_open_caller(broker, NULL, &caller) == AB_INVALID_ARGUMENT);
  EXPECT(ab_open_caller(broker, "s", NULL) == AB_INVALID_ARGUMENT);
  EXPECT(ab_open_caller(broker, "", &caller) == AB_INVALID_ARGUMENT && strstr(ab_message(), "name is empty") != NULL);
  EXPECT(ab_open_caller(broker, "s", &caller) == AB_OK);
  EXPECT(ab_call(NULL, &content, 0, &answer) == AB_INVALID_ARGUMENT);
  EXPECT(ab_call(caller, NULL, 0, &answer) == AB_INVALID_ARGUMENT);
  EXPECT(ab_call(caller, &content, 0, NULL) == AB_INVALID_ARGUMENT && strcmp(ab_message(), "answer is NULL") == 0);
  content.metadata = "said", content.metadata_bytes = 4;
  EXPECT(ab_call(caller, &content, 0, &answer) == AB_INVALID_ARGUMENT);
  EXPECT(strstr(ab_message(), "content.metadata has 4 bytes") != NULL);
  content.metadata_bytes = 0;
  EXPECT(ab_call(caller, &content, 20, &answer) == AB_DEADLINE_EXCEEDED && strcmp(ab_reason(), "NOT_TAKEN") == 0);

  EXPECT(ab_open_service(broker, "s", &options, NULL) == AB_INVALID_ARGUMENT);
  options.size = 1;
  EXPECT(ab_open_service(broker, "s", &options, &service) == AB_INVALID_ARGUMENT);
  EXPECT(strstr(ab_message(), "options.size is 1") != NULL);
  options.size = sizeof options;
  EXPECT(ab_open_service(broker, "t", &options, &service) == AB_OK);
  EXPECT(ab_open_service(broker, "t", NULL, &other) == AB_FAILED_PRECONDITION && strcmp(ab_reason(), "QUEUE") == 0);
  EXPECT(ab_take(NULL, 0, &request) == AB_INVALID_ARGUMENT && ab_take(service, 0, NULL) == AB_INVALID_ARGUMENT);
  EXPECT(ab_take(service, 0, &request) == AB_DEADLINE_EXCEEDED && strcmp(ab_reason(), "NO_REQUEST") == 0);
  EXPECT(ab_value_of(NULL) == NULL && ab_state_of(NULL, &state) == AB_INVALID_ARGUMENT);
  EXPECT(ab_reply(NULL, &content, NULL) == AB_INVALID_ARGUMENT && ab_fail(NULL, "", NULL) == AB_INVALID_ARGUMENT);
  EXPECT(ab_close_service(service) == AB_OK && ab_close_service(NULL) == AB_INVALID_ARGUMENT);
  EXPECT(ab_take(service, 0, &request) == AB_NOT_FOUND && strcmp(ab_reason(), "CHANNEL_NOT_OPEN") == 0);
  ab_drop_caller(caller);
  ab_drop_caller(NULL);
  ab_drop_service(service);
  ab_drop_service(NULL);
  ab_drop_request(NULL);
  return 0;
}

/* Only receivers can be waited for, and at least one thing. */
static int check_select(ab_broker* broker) {
  ab_channel* channel = NULL;
  ab_awaited* awaited = NULL;
  ab_array* array = NULL;
  ab_request* request = NULL;
  size_t place = 7, found = 7;
  EXPECT(ab_open_channel(broker, "waits", AB_SENDER, NULL, &channel) == AB_OK);
  EXPECT(ab_await_channel(channel, &awaited) == AB_INVALID_ARGUMENT);
  EXPECT(strstr(ab_message(), "'waits' is open as a sender") != NULL);
  ab_drop_channel(channel);
  EXPECT(ab_open_channel(broker, "waited", AB_RECEIVER, NULL, &channel) == AB_OK);
  EXPECT(ab_await_channel(NULL, &awaited) == AB_INVALID_ARGUMENT);
  EXPECT(ab_await_channel(channel, NULL) == AB_INVALID_ARGUMENT);
  EXPECT(ab_await_service(NULL, &awaited) == AB_INVALID_ARGUMENT && ab_fileno(NULL) == -1);
  EXPECT(ab_select(&awaited, 1, 0, &place, &found) == AB_INVALID_ARGUMENT);
  EXPECT(strcmp(ab_message(), "sources[0] is NULL") == 0);
  EXPECT(ab_await_channel(channel, &awaited) == AB_OK && ab_fileno(awaited) >= 0);
  EXPECT(ab_select(&awaited, 0, 0, &place, &found) == AB_INVALID_ARGUMENT);
  EXPECT(ab_select(&awaited, 1, 0, NULL, &found) == AB_INVALID_ARGUMENT);
  EXPECT(ab_select(&awaited, 1, 0, &place, NULL) == AB_INVALID_ARGUMENT);
  EXPECT(ab_select(NULL, 1, 0, &place, &found) == AB_INVALID_ARGUMENT);
  EXPECT(ab_select(&awaited, 1, 0, &place, &found) == AB_OK && found == 0);
  EXPECT(ab_try_receive(awaited, NULL) == AB_INVALID_ARGUMENT && ab_try_receive(NULL, &array) == AB_INVALID_ARGUMENT);
  EXPECT(ab_try_receive(awaited, &array) == AB_DEADLINE_EXCEEDED && strcmp(ab_reason(), "CHANNEL_EMPTY") == 0);
  EXPECT(ab_try_take(awaited, &request) == AB_INVALID_ARGUMENT && ab_try_take(NULL, &request) == AB_INVALID_ARGUMENT);
  ab_drop_awaited(awaited);
  ab_drop_awaited(NULL);
  ab_drop_channel(channel);
  return 0;
}

int main(int argc, char** argv) {
  ab_broker* broker = NULL;
  ab_array* array = NULL;
  ab_array* born = NULL;
  float numbers[6] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 3};
  int64_t turned[2] = {1, 3};
  ab_options options = {sizeof options, NULL, "default", "in c", 0, NULL};
  struct {
    ab_options known;
    const char* unknown;
  } newer = {{sizeof newer, NULL, "default", "in c", 0, NULL}, NULL};
  struct {
    ab_view known;
    int64_t unknown;
  } newer_view = {{sizeof newer_view, NULL, 0, 0, 0, 0, NULL, NULL, 0, 0, 0}, 7};
  ab_view view = {sizeof view, numbers, 2, 32, 1, 2, shape, NULL, 1, 0, 0};
  ab_view seen = {0};
  if (argc != 2) return 64;
  options.address = argv[1];

  newer.known.address = argv[1];

  /* A library that is newer than the program: the struct ends where it once did. */
  options.size = offsetof(ab_options, token);
  options.token = (const char*)1; /* not in the struct */
  EXPECT(ab_connect(&options, &broker) == AB_OK);
  EXPECT(ab_withdraw(broker, "nowhere") == AB_NOT_FOUND);
  ab_disconnect(broker);
  options.size = offsetof(ab_options, token) - 1;
  EXPECT(ab_connect(&options, &broker) == AB_INVALID_ARGUMENT);
  options.size = sizeof options;
  options.token = NULL;
  /* And one that is older: what it does not know must not be asked for. */
  EXPECT(ab_connect(&newer.known, &broker) == AB_OK);
  ab_disconnect(broker);
  newer.unknown = "wanted";
  EXPECT(ab_connect(&newer.known, &broker) == AB_INVALID_ARGUMENT);
  EXPECT(strstr(ab_message(), "too old") != NULL);

  EXPECT(ab_connect(&options, &broker) == AB_OK);
  EXPECT(ab_put(broker, "from c", &view, 0) == AB_OK);
  EXPECT(ab_put(broker, "from c", &view, 0) == AB_ALREADY_EXISTS);
  EXPECT(strstr(ab_message(), "from c") != NULL);
  EXPECT(ab_put(broker, "from c", &view, 1) == AB_OK);

  EXPECT(ab_get(broker, "from c", 0, &array) == AB_OK);
  EXPECT(ab_count(array) == 1);
  EXPECT(ab_view_of(array, 0, &seen) == AB_INVALID_ARGUMENT); /* its size is not set */
  seen.size = sizeof seen;
  EXPECT(ab_view_of(array, 1, &seen) == AB_INVALID_ARGUMENT);
  EXPECT(ab_view_of(array, 0, &seen) == AB_OK);
  EXPECT(seen.rank == 2 && seen.shape[0] == 2 && seen.shape[1] == 3 && seen.strides[0] == 3 && seen.strides[1] == 1);
  EXPECT(seen.type_code == 2 && seen.type_bits == 32 && seen.type_lanes == 1);
  EXPECT(seen.device_type == 1 && seen.read_only);
  EXPECT(memcmp(seen.data, numbers, sizeof numbers) == 0);
  EXPECT(ab_view_of(array, 0, &newer_view.known) == AB_OK);
  EXPECT(newer_view.known.data == seen.data && newer_view.known.size == sizeof newer_view && newer_view.unknown == 0);
  EXPECT(ab_publish(broker, array, "again", 0) == AB_INVALID_ARGUMENT);
  ab_drop(array);

  view.strides = turned; /* of column-major order: it is copied into row-major */
  shape[0] = 3, shape[1] = 2, turned[0] = 1, turned[1] = 3;
  EXPECT(ab_put(broker, "turned", &view, 0) == AB_OK);
  EXPECT(ab_get(broker, "turned", 0, &array) == AB_OK);
  EXPECT(ab_view_of(array, 0, &seen) == AB_OK);
  EXPECT(((const float*)seen.data)[1] == 3 && ((const float*)seen.data)[2] == 1);
  ab_drop(array);

  view.strides = NULL;
  EXPECT(ab_empty(broker, &view, &born) == AB_OK);
  EXPECT(ab_view_of(born, 0, &seen) == AB_OK && !seen.read_only);
  memset(seen.data, 7, sizeof numbers);
  EXPECT(ab_publish(broker, born, "born", 0) == AB_OK);
  ab_drop(born);
  EXPECT(ab_get(broker, "born", 1000, &array) == AB_OK);
  EXPECT(ab_view_of(array, 0, &seen) == AB_OK && ((const unsigned char*)seen.data)[23] == 7);

  EXPECT(ab_get(broker, "nowhere", 0, &born) == AB_NOT_FOUND);
  int32_t done = 0;
  EXPECT(ab_outcome(broker, 0, &done) == AB_INVALID_ARGUMENT); /* nothing has timed out yet */
  EXPECT(ab_get(broker, "nowhere", 1, &born) == AB_DEADLINE_EXCEEDED);
  EXPECT(ab_get(broker, NULL, 0, &born) == AB_INVALID_ARGUMENT);
  view.rank = 2, view.device_type = 1;
  if (check_refusals(broker, view) != 0 || check_channels(broker, view) != 0) return 1;
  if (check_nulls(broker, view) != 0 || check_relay(broker, view) != 0) return 1;
  if (check_bundles(broker, view) != 0 || check_options(argv[1]) != 0) return 1;
  if (check_services(broker, view) != 0 || check_select(broker) != 0) return 1;
  view.rank = -1;
  EXPECT(ab_put(broker, "x", &view, 0) == AB_INVALID_ARGUMENT);
  view.rank = 2, view.device_type = 2;
  EXPECT(ab_put(broker, "x", &view, 0) == AB_INVALID_ARGUMENT);
  EXPECT(ab_withdraw(broker, "born") == AB_OK);
  EXPECT(ab_withdraw(broker, "born") == AB_NOT_FOUND);
  ab_disconnect(broker);
  EXPECT(((const unsigned char*)seen.data)[0] == 7); /* what is held outlives the connection */
  ab_drop(array);
  ab_disconnect(NULL);
  ab_drop(NULL);
  puts("ok");
  return 0;
}
