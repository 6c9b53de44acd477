// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include <arraybridge/token.h>

#include "proto/boundary/environment.h"

namespace arraybridge {
namespace {

constexpr size_t kTokenBytesMax = 256;

}  // namespace

Result<std::string> FindToken(const std::string& file) {
  if (file.empty()) {
    if (auto token = Environment("ARRAYBRIDGE_TOKEN"); !token.empty()) return token;
  }
  const std::string path = file.empty() ? Environment("ARRAYBRIDGE_TOKEN_FILE") : file;
  if (path.empty()) return std::string();
  std::ifstream from(path, std::ios::binary);
  std::string token(kTokenBytesMax + 3, '\0');
  if (!from || (!from.read(token.data(), static_cast<std::streamsize>(token.size())) && from.bad())) {
    return InvalidArgument("the token file ", path, " cannot be read");
  }
  token.resize(static_cast<size_t>(from.gcount()));
  while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  if (!token.empty() && token.size() <= kTokenBytesMax) return token;
  return InvalidArgument("the token file ", path, " must have 1 to ", kTokenBytesMax, " bytes");
}

}  // namespace arraybridge
