// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/admin/cdi.h"

#include <google/protobuf/struct.pb.h>

#include <filesystem>
#include <ostream>
#include <string>

namespace arraybridge::ctl {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

constexpr char kInside[] = "/run/arraybridge";  // where every client looks

Value& Field(Struct& of, const char* name) { return (*of.mutable_fields())[name]; }

}  // namespace

Status PrintCdi(const Options& options, std::ostream& out) {
  const auto socket = FindBroker(options.address);
  if (!socket.ok()) return Status(socket.status()).Because(kUsageReason);
  Struct file;
  Field(file, "cdiVersion").set_string_value("0.5.0");
  Field(file, "kind").set_string_value("arraybridge.org/broker");
  Struct& device = *Field(file, "devices").mutable_list_value()->add_values()->mutable_struct_value();
  Field(device, "name").set_string_value("host");
  Struct& edits = *Field(device, "containerEdits").mutable_struct_value();
  Field(edits, "env").mutable_list_value()->add_values()->set_string_value(Concat("ARRAYBRIDGE_ADDRESS=", kInside));
  // The directory is mounted, not the sockets: a restarted broker makes new sockets in it.
  const std::string directory = std::filesystem::absolute(*socket).lexically_normal().parent_path();
  Struct& mount = *Field(edits, "mounts").mutable_list_value()->add_values()->mutable_struct_value();
  Field(mount, "hostPath").set_string_value(directory);
  Field(mount, "containerPath").set_string_value(kInside);
  for (const char* const option : {"rbind", "rw", "nosuid", "nodev", "noexec"}) {
    Field(mount, "options").mutable_list_value()->add_values()->set_string_value(option);
  }
  return PrintJson(file, false, out);
}

}  // namespace arraybridge::ctl
