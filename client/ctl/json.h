// A JsonLayout writes messages of one type as JSON, character for character as protobuf's own printer does with field
// names as in the .proto and defaults printed. That printer serialises a message and parses it again through a type
// resolver, which takes 40 us for a row of `ls`; a layout is made once for a type and takes about 1 us.
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
  // Nothing: the type has maps, floating-point fields, messages of google.protobuf or itself inside, which are left to
  // protobuf's printer.
  static std::optional<JsonLayout> Of(const google::protobuf::Descriptor& type);

  // REQUIRES: `message` is of the layout's type. Appends one line without its end or, with `whitespace`, indented
  // lines.
  void Append(const google::protobuf::Message& message, bool whitespace, std::string* out) const;

 private:
  struct Field {
    const google::protobuf::FieldDescriptor* descriptor;
    google::protobuf::FieldDescriptor::CppType type;
    bool repeated;
    bool has_presence;  // shown if it was set; any other field always
    bool bytes;
    std::string key;                     // with its comma, quotes and colon
    std::unique_ptr<JsonLayout> inside;  // of a message
  };
  class Writing;

  static std::optional<JsonLayout> AtDepth(const google::protobuf::Descriptor& type, int depth);

  std::vector<Field> fields_;  // as they are declared, members of a oneof last
};

}  // namespace arraybridge::ctl
