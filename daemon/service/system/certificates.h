// SPDX-License-Identifier: Apache-2.0
// The Certificates are the TCP door's current certificate, its key, and the authorities of client certificates. They
// follow their files: valid new files are used from the next handshake on; invalid ones are logged, and the old
// certificates stay in use.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

#include "daemon/config/config.h"
#include "daemon/config/files/tls_files.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class Certificates {
 public:
  // INVALID_ARGUMENT: as ReadTls.
  static Result<std::unique_ptr<Certificates>> Load(const TlsFiles& files);

  // Uses these files from now on, even if they were refused before.
  void Reload(const TlsFiles& files) AB_EXCLUDES(mutex_);
  // The certificates for one handshake. Checks at most once a second whether the files have changed since they were
  // read.
  std::shared_ptr<const TlsMaterial> Current() AB_EXCLUDES(mutex_);

 private:
  // The properties of a file that change when it is rewritten or replaced.
  struct Stamp {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t size = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  using Stamps = std::array<Stamp, 3>;

  Certificates(TlsFiles files, const Stamps& stamps, TlsMaterial material);
  static Stamp StampOf(const std::string& path);
  static Stamps StampsOf(const TlsFiles& files);
  void Read(const Stamps& stamps) AB_REQUIRES(mutex_);

  Mutex mutex_;
  TlsFiles files_ AB_GUARDED_BY(mutex_);
  Stamps stamps_ AB_GUARDED_BY(mutex_);        // of the files when they were last read; none: they were invalid
  std::string refused_ AB_GUARDED_BY(mutex_);  // the error of the last invalid files
  std::chrono::steady_clock::time_point looked_ AB_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsMaterial> material_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
