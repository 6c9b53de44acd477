// SPDX-License-Identifier: Apache-2.0
/* Has an image inverted by the servers in Python, as ask.py does: server.py answers {"image": array, "by": process}. */
#include <arraybridge/c/ab_service.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int failed(const char* call) {
  printf("%s: %s\n", call, ab_message());
  return 1;
}

int main(void) {
  static uint8_t image[480 * 640];
  const int64_t shape[] = {480, 640};
  const ab_view view = {.size = sizeof view,
                        .data = image,
                        .type_code = 1, /* DLPack's code of unsigned integers */
                        .type_bits = 8,
                        .type_lanes = 1,
                        .rank = 2,
                        .shape = shape,
                        .device_type = 1};
  const ab_content content = {.size = sizeof content, .views = &view, .count = 1};
  ab_broker* broker;
  ab_caller* caller;
  if (ab_connect(NULL, &broker) != AB_OK)
    return failed("ab_connect"); /* NULL: $ARRAYBRIDGE_ADDRESS, or as it finds one */
  if (ab_open_caller(broker, "invert", &caller) != AB_OK) return failed("ab_open_caller");
  for (int light = 1; light <= 3; light++) {
    ab_array* answer;
    ab_view inverted = {.size = sizeof inverted};
    ab_info info = {.size = sizeof info};
    memset(image, light, sizeof image);
    if (ab_call(caller, &content, 60000, &answer) != AB_OK) return failed("ab_call");
    if (ab_view_of(answer, 0, &inverted) != AB_OK) return failed("ab_view_of");
    if (ab_info_of(answer, &info) != AB_OK) return failed("ab_info_of");
    printf("an image of %d: inverted %d by %s\n", light, *(const uint8_t*)inverted.data, info.sender_client);
    ab_drop(answer); /* the bytes stay valid until here */
  }
  ab_drop_caller(caller);
  ab_disconnect(broker);
  return 0;
}
