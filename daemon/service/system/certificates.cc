// SPDX-License-Identifier: Apache-2.0
// A certificate and its key are two files that cannot be replaced atomically, so a reader may find a key that does not
// match. The daemon treats that like any other invalid pair of files: the next change of a file triggers another read.
#include "daemon/service/system/certificates.h"

#include <sys/stat.h>

#include <utility>

#include "daemon/service/telemetry/log.h"

namespace arraybridge {
namespace {

constexpr std::chrono::seconds kLookEvery{1};

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec; }

void TellOutOfDate(const TlsMaterial& material) {
  if (!material.out_of_date.empty()) log::Warn("tcp: {}", material.out_of_date);
}

}  // namespace

Certificates::Certificates(TlsFiles files, const Stamps& stamps, TlsMaterial material)
    : files_(std::move(files)),
      stamps_(stamps),
      looked_(std::chrono::steady_clock::now()),
      material_(std::make_shared<const TlsMaterial>(std::move(material))) {}

Result<std::unique_ptr<Certificates>> Certificates::Load(const TlsFiles& files) {
  const Stamps stamps = StampsOf(files);  // taken before reading, so that a change during the read is noticed
  auto material = ReadTls(files);
  if (!material.ok()) return material.status();
  TellOutOfDate(*material);
  return std::unique_ptr<Certificates>(new Certificates(files, stamps, *std::move(material)));
}

Certificates::Stamp Certificates::StampOf(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {found.st_dev, found.st_ino, found.st_size, Nanoseconds(found.st_mtim), Nanoseconds(found.st_ctim)};
}

Certificates::Stamps Certificates::StampsOf(const TlsFiles& files) {
  return {StampOf(files.cert), StampOf(files.key), StampOf(files.client_ca)};
}

void Certificates::Reload(const TlsFiles& files) {
  const MutexLock lock(mutex_);
  files_ = files;
  Read(StampsOf(files_));
}

std::shared_ptr<const TlsMaterial> Certificates::Current() {
  const MutexLock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ >= kLookEvery) {
    looked_ = now;
    const Stamps stamps = StampsOf(files_);
    if (stamps != stamps_) Read(stamps);
  }
  return material_;
}

void Certificates::Read(const Stamps& stamps) {
  stamps_ = stamps;
  auto read = ReadTls(files_);
  if (!read.ok()) {
    stamps_ = {};  // the error may be temporary, so the files are checked again
    if (refused_ == read.status().message()) return;
    refused_ = read.status().message();
    return log::Error("tcp: new certificates refused, the old ones stay in use: {}", read.status().message());
  }
  refused_.clear();
  const bool same =
      read->cert == material_->cert && read->key == material_->key && read->client_ca == material_->client_ca;
  if (same) return;
  log::Info("tcp: new certificates, valid until {}", read->until);
  TellOutOfDate(*read);
  material_ = std::make_shared<const TlsMaterial>(*std::move(read));
}

}  // namespace arraybridge
