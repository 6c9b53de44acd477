// SPDX-License-Identifier: Apache-2.0
// A JsonWriter appends JSON to a string. It writes a message as protobuf's printer does, with the field names of the
// .proto and with defaults, in the form of PrintableJson. Protobuf's printer serialises a message and parses it again
// through a type resolver, which takes 40 us for a row of `ls`; a JsonWriter takes about 5 us.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace arraybridge::ctl {

class JsonWriter {
 public:
  // With `whitespace`, each member of an object and each element of a list begins an indented line.
  JsonWriter(bool whitespace, std::string* out) : whitespace_(whitespace), out_(*out) {}

  // REQUIRES: neither the message nor a nested message has a map or a floating-point field.
  void Object(const google::protobuf::Message& message);

  // An object is Open('{'), Key and a value for each member, Close('}'). A list is Open('['), Next and a value for each
  // element, Close(']').
  void Open(char bracket);
  JsonWriter& Key(std::string_view name);
  void Next();
  void Close(char bracket);
  void Text(const std::string& text);
  void Number(int64_t number) { out_ += std::to_string(number); }

 private:
  void Member(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field);
  void Value(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field, int index);
  void Boolean(bool is);
  void String(const google::protobuf::FieldDescriptor& field, const std::string& text);
  void Quoted(std::string_view plain);
  void Base64(std::string_view bytes);
  void Enum(const google::protobuf::FieldDescriptor& field, int number);
  void NewLine();

  const bool whitespace_;
  std::string& out_;
  size_t depth_ = 0;
  bool empty_ = true;  // whether the object or list that was opened last is empty so far
};

}  // namespace arraybridge::ctl
