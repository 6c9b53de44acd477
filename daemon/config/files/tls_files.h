// SPDX-License-Identifier: Apache-2.0
// Reads and checks the files of the TCP door when the daemon starts, so that an error names the file and does not wait
// for the first client to fail.
#pragma once

#include <string>

#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// The content of the files, in PEM.
struct TlsMaterial {
  std::string cert;
  std::string key;  // a secret
  std::string client_ca;
  std::string until;                // when the certificate expires, in readable form
  std::string out_of_date;          // why TLS will fail today because of a certificate's dates; empty: it will not
  std::string out_of_date_setting;  // the setting that names this certificate's file
};

// INVALID_ARGUMENT names the file and the error: the file is missing or unreadable; other users may write it, or read
// the key; it does not hold the expected PEM; the key needs a password or does not match the certificate; the
// certificate is not for servers. The metadata entry "setting" is the setting that names the file.
Result<TlsMaterial> ReadTls(const TlsFiles& files);

}  // namespace arraybridge
