// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/grpcpp.h>

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "proto/boundary/result.h"

namespace arraybridge::daemon {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

constexpr std::array<std::string_view, 2> kServices = {"grpc.reflection.v1.ServerReflection",
                                                       "grpc.reflection.v1alpha.ServerReflection"};

// The fields of grpc.reflection.v1, by number. Of a request:
constexpr int kHost = 1;
constexpr int kFileByName = 3;
constexpr int kFileOfSymbol = 4;
constexpr int kFileOfExtension = 5;
constexpr int kExtensionsOf = 6;
constexpr int kListServices = 7;
// Of an ExtensionRequest, ExtensionNumberResponse and ErrorResponse:
constexpr int kFirst = 1;
constexpr int kSecond = 2;
// Of a response:
constexpr int kValidHost = 1;
constexpr int kOriginalRequest = 2;
constexpr int kFiles = 4;
constexpr int kExtensions = 5;
constexpr int kServiceList = 6;
constexpr int kError = 7;

std::string Encoded(const UnknownFieldSet& fields) {
  std::string bytes;
  AB_CHECK(fields.SerializeToString(&bytes));
  return bytes;
}

// Repeated strings, or messages of one string each, in field 1.
std::string InFirst(const std::vector<std::string>& values) {
  UnknownFieldSet list;
  for (const std::string& value : values) list.AddLengthDelimited(kFirst, value);
  return Encoded(list);
}

// The file and all that it imports, each once.
std::string Files(const FileDescriptor& file) {
  std::vector<const FileDescriptor*> files{&file};
  std::set<const FileDescriptor*> seen{&file};
  std::vector<std::string> encoded;
  for (size_t i = 0; i < files.size(); ++i) {
    google::protobuf::FileDescriptorProto proto;
    files[i]->CopyTo(&proto);
    encoded.push_back(proto.SerializeAsString());
    for (int k = 0; k < files[i]->dependency_count(); ++k) {
      if (seen.insert(files[i]->dependency(k)).second) files.push_back(files[i]->dependency(k));
    }
  }
  return InFirst(encoded);
}

const FileDescriptor* FileOfExtension(const std::string& request) {
  UnknownFieldSet request_fields;
  if (!request_fields.ParseFromString(request)) return nullptr;
  std::string type;
  uint64_t number = 0;
  for (int i = 0; i < request_fields.field_count(); ++i) {
    const UnknownField& field = request_fields.field(i);
    if (field.number() == kFirst && field.type() == UnknownField::TYPE_LENGTH_DELIMITED)
      type = field.length_delimited();
    if (field.number() == kSecond && field.type() == UnknownField::TYPE_VARINT) number = field.varint();
  }
  const auto* const pool = DescriptorPool::generated_pool();
  const auto* const message = pool->FindMessageTypeByName(type);
  if (message == nullptr) return nullptr;
  const auto* const extension = pool->FindExtensionByNumber(message, static_cast<int>(number));
  return extension == nullptr ? nullptr : extension->file();
}

// Nothing: there is no such message.
std::optional<std::string> ExtensionsOf(const std::string& type) {
  const auto* const pool = DescriptorPool::generated_pool();
  const auto* const message = pool->FindMessageTypeByName(type);
  if (message == nullptr) return std::nullopt;
  std::vector<const google::protobuf::FieldDescriptor*> found;
  pool->FindAllExtensions(message, &found);
  UnknownFieldSet numbers;
  numbers.AddLengthDelimited(kFirst, type);
  for (const auto* each : found) numbers.AddVarint(kSecond, static_cast<uint64_t>(each->number()));
  return Encoded(numbers);
}

std::string ErrorOf(grpc::StatusCode code, const std::string& text) {
  UnknownFieldSet error;
  error.AddVarint(kFirst, static_cast<uint64_t>(code));
  error.AddLengthDelimited(kSecond, text);
  return Encoded(error);
}

// The number of the answer's field, and the field.
std::pair<int, std::string> AnswerTo(const UnknownField& field, const std::vector<std::string>& services) {
  const std::string& text = field.length_delimited();
  const auto* const pool = DescriptorPool::generated_pool();
  const FileDescriptor* file = nullptr;
  switch (field.number()) {
    case kListServices: {
      std::vector<std::string> named;
      named.reserve(services.size());
      for (const std::string& service : services) named.push_back(InFirst({service}));
      return {kServiceList, InFirst(named)};
    }
    case kExtensionsOf:
      if (auto numbers = ExtensionsOf(text)) return {kExtensions, *std::move(numbers)};
      break;
    case kFileByName:
      file = pool->FindFileByName(text);
      break;
    case kFileOfSymbol:
      file = pool->FindFileContainingSymbol(text);
      break;
    case kFileOfExtension:
      file = FileOfExtension(text);
      break;
    default:
      break;
  }
  if (file != nullptr) return {kFiles, Files(*file)};
  return {kError, ErrorOf(grpc::StatusCode::NOT_FOUND, "no such file, symbol or extension")};
}

// Nothing: it is no message.
std::optional<std::string> ReflectionAnswer(const std::string& request, const std::vector<std::string>& services) {
  UnknownFieldSet request_fields;
  if (!request_fields.ParseFromString(request)) return std::nullopt;
  UnknownFieldSet answer;
  const UnknownField* one = nullptr;  // of the oneof; the last one counts
  for (int i = 0; i < request_fields.field_count(); ++i) {
    const UnknownField& field = request_fields.field(i);
    if (field.type() != UnknownField::TYPE_LENGTH_DELIMITED) continue;
    if (field.number() == kHost) answer.AddLengthDelimited(kValidHost, field.length_delimited());
    if (field.number() >= kFileByName && field.number() <= kListServices) one = &field;
  }
  answer.AddLengthDelimited(kOriginalRequest, request);
  if (one == nullptr) {
    answer.AddLengthDelimited(kError, ErrorOf(grpc::StatusCode::INVALID_ARGUMENT, "the request asks for nothing"));
  } else {
    auto [number, field] = AnswerTo(*one, services);
    *answer.AddLengthDelimited(number) = std::move(field);
  }
  return Encoded(answer);
}

// One answer to each request; deletes itself.
class ReflectionStream final : public grpc::ServerGenericBidiReactor {
 public:
  explicit ReflectionStream(const std::vector<std::string>& services) : services_(services) { StartRead(&request_); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    grpc::Slice bytes;
    std::optional<std::string> answer;
    if (request_.DumpToSingleSlice(&bytes).ok()) {
      answer = ReflectionAnswer({reinterpret_cast<const char*>(bytes.begin()), bytes.size()}, services_);
    }
    if (!answer) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "this is no ServerReflectionRequest"});
    const grpc::Slice slice(*answer);
    answer_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&answer_);
  }
  void OnWriteDone(bool ok) override { ok ? StartRead(&request_) : Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }

  const std::vector<std::string>& services_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
};

}  // namespace

GrpcReflection::GrpcReflection(std::vector<std::string> services) : services_(std::move(services)) {
  services_.emplace_back("grpc.health.v1.Health");
  services_.insert(services_.end(), kServices.begin(), kServices.end());
}

grpc::ServerGenericBidiReactor* GrpcReflection::CreateReactor(grpc::GenericCallbackServerContext* context) {
  for (const std::string_view service : kServices) {
    if (context->method() == Concat("/", service, "/ServerReflectionInfo")) return new ReflectionStream(services_);
  }
  return CallbackGenericService::CreateReactor(context);
}

}  // namespace arraybridge::daemon
