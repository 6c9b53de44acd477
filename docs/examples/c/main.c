// SPDX-License-Identifier: Apache-2.0
/* main put|get: puts an array of float32 under a name, or gets it, without a copy. */
#include <arraybridge/arraybridge.h>
#include <stdio.h>
#include <string.h>

static int failed(const char* call) {
  printf("%s: %s\n", call, ab_message());
  return 1;
}

static int put(ab_broker* broker) {
  float numbers[4][256];
  for (int i = 0; i < 4 * 256; i++) numbers[i / 256][i % 256] = (float)i;
  const int64_t shape[] = {4, 256};
  const ab_view view = {.size = sizeof view,
                        .data = numbers,
                        .type_code = 2,
                        .type_bits = 32,
                        .type_lanes = 1,
                        .rank = 2,
                        .shape = shape,
                        .device_type = 1};
  if (ab_put(broker, "numbers", &view, 1) != AB_OK) return failed("ab_put");
  puts("put numbers");
  return 0;
}

static int get(ab_broker* broker) {
  ab_array* array;
  ab_view view = {.size = sizeof view};
  if (ab_get(broker, "numbers", 10000, &array) != AB_OK) return failed("ab_get");
  if (ab_view_of(array, 0, &view) != AB_OK) return failed("ab_view_of");
  int64_t elements = 1;
  for (int32_t i = 0; i < view.rank; i++) elements *= view.shape[i];
  double sum = 0;
  for (int64_t i = 0; i < elements; i++) sum += ((const float*)view.data)[i];
  printf("got %lld elements, sum %.0f\n", (long long)elements, sum);
  ab_drop(array); /* the bytes stay valid until here, also if the daemon has ended */
  return 0;
}

int main(int count, char** words) {
  ab_broker* broker;
  if (count != 2) return puts("usage: main put|get"), 64;
  if (ab_connect(NULL, &broker) != AB_OK)
    return failed("ab_connect"); /* NULL: $ARRAYBRIDGE_ADDRESS, or as it finds one */
  const int status = strcmp(words[1], "put") == 0 ? put(broker) : get(broker);
  ab_disconnect(broker);
  return status;
}
