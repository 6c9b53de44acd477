#include "daemon/service/status_grpc.h"

#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <string>

namespace arraybridge {
namespace {

// The wire without a schema, so that the hand-written encoding is read by somebody else's decoder.
google::protobuf::UnknownFieldSet Decoded(const std::string& bytes) {
  google::protobuf::UnknownFieldSet fields;
  EXPECT_TRUE(fields.ParseFromString(bytes));
  return fields;
}

std::string Bytes(const google::protobuf::UnknownFieldSet& fields, int index, int number) {
  EXPECT_EQ(fields.field(index).number(), number);
  EXPECT_EQ(fields.field(index).type(), google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED);
  return fields.field(index).length_delimited();
}

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
  const auto details = Decoded(status.error_details());
  ASSERT_EQ(details.field_count(), 3);
  EXPECT_EQ(details.field(0).number(), 1);
  EXPECT_EQ(details.field(0).varint(), 8u);
  EXPECT_EQ(Bytes(details, 1, 2), "full");
  const auto any = Decoded(Bytes(details, 2, 3));
  EXPECT_EQ(Bytes(any, 0, 1), "type.googleapis.com/google.rpc.ErrorInfo");
  const auto info = Decoded(Bytes(any, 1, 2));
  EXPECT_EQ(Bytes(info, 0, 1), "QUOTA_EXCEEDED");
  EXPECT_EQ(Bytes(info, 1, 2), "arraybridge");
  const auto entry = Decoded(Bytes(info, 2, 3));
  EXPECT_EQ(Bytes(entry, 0, 1), "quota_bytes");
  EXPECT_EQ(Bytes(entry, 1, 2), std::string(200, '7'));  // a length of two bytes
}

TEST(ToGrpc, TextsFitIntoATrailer) {
  std::string text = "x";
  while (text.size() < 5000) text += "ü";  // two bytes each, at odd offsets
  const auto status = ToGrpc(Status{Code::kInternal, text}.Because("R").With("k", text));
  EXPECT_EQ(status.error_message().size(), 1023u);  // not in the middle of a letter
  EXPECT_LT(status.error_message().size() + status.error_details().size(), 4096u);
}

}  // namespace
}  // namespace arraybridge
