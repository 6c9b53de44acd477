// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/status_grpc.h"

#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <string>

namespace arraybridge::daemon {
namespace {

// Decodes protobuf without a schema, so that the hand-written encoding is read by an independent decoder.
class Decoded {
 public:
  explicit Decoded(const std::string& bytes) { EXPECT_TRUE(fields_.ParseFromString(bytes)); }

  int size() const { return fields_.field_count(); }
  uint64_t number(int index, int tag) const { return Field(index, tag).varint(); }
  std::string bytes(int index, int tag) const {
    EXPECT_EQ(Field(index, tag).type(), google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED);
    return Field(index, tag).length_delimited();
  }

 private:
  const google::protobuf::UnknownField& Field(int index, int tag) const {
    EXPECT_LT(index, fields_.field_count());
    EXPECT_EQ(fields_.field(index).number(), tag);
    return fields_.field(index);
  }

  google::protobuf::UnknownFieldSet fields_;
};

TEST(ToGrpc, KeepsCodeAndText) {
  const auto status = ToGrpc(NotFound("there is no share 'x'"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "there is no share 'x'");
  EXPECT_TRUE(status.error_details().empty());
  EXPECT_TRUE(ToGrpc(Ok()).ok());
}

TEST(ToGrpc, AReasonBecomesAnErrorInfo) {
  const auto status =
      ToGrpc(ResourceExhausted("full").Because("QUOTA_EXCEEDED").With("quota_bytes", std::string(200, '7')));
  const Decoded details(status.error_details());
  ASSERT_EQ(details.size(), 3);
  EXPECT_EQ(details.number(0, 1), 8u);
  EXPECT_EQ(details.bytes(1, 2), "full");
  const Decoded any(details.bytes(2, 3));
  EXPECT_EQ(any.bytes(0, 1), "type.googleapis.com/google.rpc.ErrorInfo");
  const Decoded info(any.bytes(1, 2));
  EXPECT_EQ(info.bytes(0, 1), "QUOTA_EXCEEDED");
  EXPECT_EQ(info.bytes(1, 2), "arraybridge");
  const Decoded entry(info.bytes(2, 3));
  EXPECT_EQ(entry.bytes(0, 1), "quota_bytes");
  EXPECT_EQ(entry.bytes(1, 2), std::string(200, '7'));  // its length takes two bytes
}

TEST(ToGrpc, TextsFitIntoATrailer) {
  std::string text = "x";
  while (text.size() < 5000) text += "ü";  // two bytes per character, at odd offsets
  const auto status = ToGrpc(Status{Code::kInternal, text}.Because("R").With("k", text));
  EXPECT_EQ(status.error_message().size(), 1023u);  // not cut within a character
  EXPECT_LT(status.error_message().size() + status.error_details().size(), 4096u);
}

}  // namespace
}  // namespace arraybridge::daemon
