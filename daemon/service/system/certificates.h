// The Certificates are what the TCP door shows, and whose clients it believes, right now. They follow their files: what
// is good in new ones holds from the next handshake on, what is wrong leaves the old ones in use and is told to the
// log.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

#include "daemon/config/config.h"
#include "daemon/config/tls_files.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class Certificates {
 public:
  // INVALID_ARGUMENT: as ReadTls.
  static Result<std::unique_ptr<Certificates>> Load(const TlsFiles& files);

  // These files from now on, whatever was seen in them before.
  void Reload(const TlsFiles& files) AB_EXCLUDES(mutex_);
  // Those in use, for one handshake. At most once a second it looks whether the files are others than those it read
  // last.
  std::shared_ptr<const TlsMaterial> Current() AB_EXCLUDES(mutex_);

 private:
  // What changes with a file, whether it is written anew or replaced.
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
  Stamps stamps_ AB_GUARDED_BY(mutex_);        // of the files when they were read last; none: they were no good
  std::string refused_ AB_GUARDED_BY(mutex_);  // what was said of the latest that could not be used
  std::chrono::steady_clock::time_point looked_ AB_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsMaterial> material_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
