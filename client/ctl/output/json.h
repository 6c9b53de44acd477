// SPDX-License-Identifier: Apache-2.0
// A JsonLayout writes messages of one type as JSON. The text is identical to PrintableJson of that of protobuf's
// printer, with the field names of the .proto and with defaults. Protobuf's printer serialises a message and parses it
// again through a type resolver, which takes 40 us for a row of `ls`. A layout is made once for a type and takes about
// 1 us.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace arraybridge::ctl {

class JsonLayout {
 public:
  // nullopt: the type contains maps, floating-point fields, messages of google.protobuf, or itself. Protobuf's printer
  // writes these.
  static std::optional<JsonLayout> Of(const google::protobuf::Descriptor& type);

  // REQUIRES: `message` has the layout's type. Appends one line without its line feed or, with `whitespace`, indented
  // lines.
  void Append(const google::protobuf::Message& message, bool whitespace, std::string* out) const;

 private:
  struct Field {
    const google::protobuf::FieldDescriptor* descriptor;
    google::protobuf::FieldDescriptor::CppType type;
    bool repeated;
    bool has_presence;  // shown if it is set; any other field is always shown
    bool bytes;
    std::string key;                     // with its comma, quotes and colon
    std::unique_ptr<JsonLayout> inside;  // if the field is a message
  };
  class Writing;

  static std::optional<JsonLayout> AtDepth(const google::protobuf::Descriptor& type, int depth);

  std::vector<Field> fields_;  // in the order of declaration, members of a oneof last
};

}  // namespace arraybridge::ctl
