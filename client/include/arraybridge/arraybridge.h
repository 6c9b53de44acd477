// SPDX-License-Identifier: Apache-2.0
// The C API of arraybridge: put arrays of host memory in, get arrays out. It consists of opaque handles, plain numbers,
// and structs that contain their own size, so that later versions can append members: a program built with an older
// header works with a newer library, and one built with a newer header works with an older library as long as it leaves
// the newer members zero. All functions are thread-safe, except that one ab_array must not be used by two threads at a
// time.
//
//   ab_broker* broker;
//   if (ab_connect(NULL, &broker) != AB_OK) puts(ab_message());
//   ab_put(broker, "frame", &view, 0);
//   ab_get(broker, "frame", 1000, &array);          // in any process
//
// Link with libarraybridge, which needs only libc and libstdc++.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AB_API __attribute__((visibility("default")))

/* What became of a call: gRPC's canonical codes. ab_message tells more. */
typedef int32_t ab_code;
enum {
  AB_OK = 0,
  AB_CANCELLED = 1,
  AB_UNKNOWN = 2,
  AB_INVALID_ARGUMENT = 3,
  AB_DEADLINE_EXCEEDED = 4,
  AB_NOT_FOUND = 5,
  AB_ALREADY_EXISTS = 6,
  AB_PERMISSION_DENIED = 7,
  AB_RESOURCE_EXHAUSTED = 8,
  AB_FAILED_PRECONDITION = 9,
  AB_ABORTED = 10,
  AB_OUT_OF_RANGE = 11,
  AB_INTERNAL = 13,
  AB_UNAVAILABLE = 14
};

/* A connection to arraybridged: made on first need, and anew when the daemon has restarted. */
typedef struct ab_broker ab_broker;
/* Arrays of one share, or of memory that is to become one. They stay valid until ab_drop, whoever else ends. */
typedef struct ab_array ab_array;

typedef struct ab_options {
  size_t size;         /* sizeof(ab_options) */
  const char* address; /* the directory of the sockets; NULL: as docs/guides/operations.md finds it */
  const char* ns;      /* namespace; NULL: "default" */
  const char* client;  /* a name to show; may be NULL */
  int64_t timeout_ms;  /* of every call; 0: 10 s */
  /* What follows is not in the structs of programs made before it was added, and is zero then. */
  const char* token; /* a secret that opens namespaces, at most 256 bytes; "": none; NULL: $ARRAYBRIDGE_TOKEN, else what
                        is in the file $ARRAYBRIDGE_TOKEN_FILE, if any */
} ab_options;

/* Type codes are DLPack's: 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool. */
typedef struct ab_view {
  size_t size; /* sizeof(ab_view) */
  void* data;  /* of the first element */
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  int32_t rank;
  const int64_t* shape;   /* elements; `rank` of them */
  const int64_t* strides; /* elements; NULL: compact row-major */
  int32_t device_type;    /* DLPack's; 1: host memory, 2: CUDA */
  int32_t device_id;
  int32_t read_only; /* writing to it ends the process */
} ab_view;

/* Why the last call of this thread failed; valid until its next one. Never NULL. */
AB_API const char* ab_message(void);
/* The same in one word, for programs: "CHANNEL_ENDED", "NAME_TAKEN"; "" if there is none. */
AB_API const char* ab_reason(void);

/* `options` may be NULL. Nothing is asked of the daemon yet. AB_INVALID_ARGUMENT: also of a token's file that cannot be
 * read, or holds none. */
AB_API ab_code ab_connect(const ab_options* options, ab_broker** broker);
/* Arrays that are held stay valid. NULL is nothing to do. */
AB_API void ab_disconnect(ab_broker* broker);

/* Copies one array of host memory into a share of this name. A compact one at an address that is a multiple of 256, in
 * an array of ab_get or ab_receive that is not dropped, needs no copy within its namespace: both shares have its bytes.
 * AB_ALREADY_EXISTS unless `replace`; AB_RESOURCE_EXHAUSTED: no room came within the timeout. */
AB_API ab_code ab_put(ab_broker* broker, const char* name, const ab_view* source, int replace);

/* Writable host memory of the broker's for one array of this type and shape (`data` and `strides` are ignored), which
 * ab_publish makes a share without copying it. */
AB_API ab_code ab_empty(ab_broker* broker, const ab_view* wanted, ab_array** array);
/* REQUIRES: `array` is of ab_empty, and nobody writes to it any more. */
AB_API ab_code ab_publish(ab_broker* broker, const ab_array* array, const char* name, int replace);

/* The arrays of a share, read-only and not copied. Waits for the name; 0 or less: AB_NOT_FOUND at once. */
AB_API ab_code ab_get(ab_broker* broker, const char* name, int64_t wait_ms, ab_array** array);

/* How many arrays there are: a share may hold several. */
AB_API size_t ab_count(const ab_array* array); /* NULL: 0 */
/* Fills `view`, whose `size` is set. What it points to is the array's. AB_INVALID_ARGUMENT: there is no such index. */
AB_API ab_code ab_view_of(const ab_array* array, size_t index, ab_view* view);
/* NULL is nothing to do. */
AB_API void ab_drop(ab_array* array);

/* Several arrays, and bytes of the user with them: what ab_put_content and ab_send take. `structure` describes the tree
 * of the arrays, as docs/guides/writing-a-client.md encodes it; without one Python reads one array, or a list. */
typedef struct ab_content {
  size_t size;           /* sizeof(ab_content) */
  const ab_view* views;  /* of host memory; copied, unless all lie in one share, and each as ab_put says */
  size_t count;          /* of `views` */
  const ab_array* array; /* instead of `views`: one of ab_empty or ab_empty_bundle, which is not copied and not written
                            any more; or one of ab_get, ab_receive or ab_open_bundle, whose views are taken */
  const void* structure; /* may be NULL. A program that passes on a tree sets the one that ab_info_of returned; a bundle
                            keeps its own if structure_bytes is 0 */
  size_t structure_bytes;
  const void* metadata; /* may be NULL; at most 16,384 bytes, unless the daemon is configured otherwise */
  size_t metadata_bytes;
} ab_content;

AB_API ab_code ab_put_content(ab_broker* broker, const char* name, const ab_content* content, int replace);

/* What is known of arrays that ab_get or ab_receive returned. What it points to is the array's. */
typedef struct ab_info {
  size_t size; /* sizeof(ab_info) */
  const char* name;
  uint64_t generation; /* 0: of a channel */
  const void* structure;
  size_t structure_bytes;
  const void* metadata;
  size_t metadata_bytes;
  /* Of a channel; 0 otherwise. */
  uint64_t sequence;         /* 1: the first array that was ever sent into the channel */
  uint64_t stream;           /* in which it was sent */
  uint64_t sent_ns;          /* when: CLOCK_BOOTTIME */
  uint64_t sender_process;   /* in the daemon's PID namespace; 0: unknown */
  const char* sender_client; /* its name for display; "" if it has none */
  /* Of a bundle; NULL and 0 otherwise, and in the structs of programs made before they were added. */
  const void* fingerprint;
  size_t fingerprint_bytes;
} ab_info;

/* Fills `info`, whose `size` is set. AB_INVALID_ARGUMENT: the array is of ab_empty. */
AB_API ab_code ab_info_of(const ab_array* array, ab_info* info);

/* A bundle is one share of many arrays, each found by its name (docs/guides/models.md). Its ab_array has all of them,
 * sorted by name: ab_count, ab_view_of, ab_info_of and ab_publish are as for other arrays, and ab_view_of reads one
 * entry only. */
enum { AB_PARAMETER = 0, AB_BUFFER = 1, AB_OTHER = 2 };

typedef struct ab_entry {
  size_t size; /* sizeof(ab_entry) */
  const char* name;
  int32_t kind;        /* AB_PARAMETER, ... */
  const char* tied_to; /* the array whose bytes these are, of the same type and shape; NULL: they are its own */
  const ab_view* view; /* for ab_empty_bundle: type and shape; NULL in an answer */
} ab_entry;

/* Writable host memory for a bundle of these arrays, which ab_publish makes a share. AB_INVALID_ARGUMENT: names or ties
 * that no bundle can have. `fingerprint` may be NULL. */
AB_API ab_code ab_empty_bundle(ab_broker* broker, const ab_entry* entries, size_t count, const void* fingerprint,
                               size_t fingerprint_bytes, ab_array** bundle);
/* Waits for the name, as ab_get. Its arrays may lie on a GPU (ab_view.device_type). AB_INVALID_ARGUMENT: the share is
 * no bundle. */
AB_API ab_code ab_open_bundle(ab_broker* broker, const char* name, int64_t wait_ms, ab_array** bundle);
/* By binary search. AB_NOT_FOUND. */
AB_API ab_code ab_index_of(const ab_array* bundle, const char* name, size_t* index);
/* Fills `entry`, whose `size` is set. What it points to is the array's. AB_OUT_OF_RANGE; AB_INVALID_ARGUMENT: the entry
 * is malformed, and the others are not affected. */
AB_API ab_code ab_entry_of(const ab_array* bundle, size_t index, ab_entry* entry);

/* One end of a channel (docs/guides/channels.md). Its calls may run on several threads. */
typedef struct ab_channel ab_channel;

enum { AB_SENDER = 1, AB_RECEIVER = 2 };
/* AB_AS_IS: as other ends state it, else a queue. */
enum { AB_AS_IS = 0, AB_QUEUE = 1, AB_BROADCAST = 2, AB_LATEST = 3 };

typedef struct ab_channel_options {
  size_t size;         /* sizeof(ab_channel_options) */
  uint64_t capacity;   /* the most queued arrays; 0: as other ends state it, else 16 */
  int32_t mode;        /* AB_AS_IS, ... */
  int32_t drop_oldest; /* AB_BROADCAST: 1: a slow receiver misses the oldest; -1: senders wait for it; 0: as other ends
                          state it, else senders wait */
  uint64_t replay;     /* AB_BROADCAST: a new receiver gets so many of the last arrays; 0: as other ends state it, else
                          none */
  int32_t wait_for_lost; /* 1: ab_send and ab_receive go on waiting when peers are lost; 0: AB_ABORTED, once */
} ab_channel_options;

/* `options` may be NULL. AB_FAILED_PRECONDITION: the channel has another capacity or mode. REQUIRES: `broker` is
 * disconnected only after ab_drop_channel. */
AB_API ab_code ab_open_channel(ab_broker* broker, const char* name, int32_t role, const ab_channel_options* options,
                               ab_channel** channel);
/* Waits for room; less than 0: without a limit. AB_DEADLINE_EXCEEDED: none came in time. AB_FAILED_PRECONDITION,
 * AB_ABORTED: the last receiver has closed, or is lost; nothing was sent, and the next call goes on.
 * AB_RESOURCE_EXHAUSTED: no memory for a copy came in time. */
AB_API ab_code ab_send(ab_channel* channel, const ab_content* content, int64_t timeout_ms);
/* The next arrays, read-only and not copied. Waits for them; less than 0: without a limit. AB_DEADLINE_EXCEEDED:
 * nothing came in time. AB_OUT_OF_RANGE: the senders have closed the stream. AB_ABORTED: a sender is lost. The next
 * call goes on. */
AB_API ab_code ab_receive(ab_channel* channel, int64_t timeout_ms, ab_array** array);
/* Closes the end in order. Calls that wait on it return. */
AB_API ab_code ab_close_channel(ab_channel* channel);
/* Frees it, and gives it up if it was not closed. NULL is nothing to do. REQUIRES: no call uses it. */
AB_API void ab_drop_channel(ab_channel* channel);

/* The name is free; who has the arrays keeps them. */
AB_API ab_code ab_withdraw(ab_broker* broker, const char* name);

/* Whether this thread's latest call that returned AB_DEADLINE_EXCEEDED, of this ab_broker, was done after all: `done`
 * is 1 or 0. A daemon does not begin a request whose time is up, but it may have begun it just before. Waits for its
 * answer so long, then AB_DEADLINE_EXCEEDED: ask again. AB_UNAVAILABLE: the connection ended before the answer came. */
AB_API ab_code ab_outcome(ab_broker* broker, int64_t timeout_ms, int32_t* done);

#ifdef __cplusplus
}
#endif
