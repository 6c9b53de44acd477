// The files of the TCP door: read, and looked at before they are believed, so that what is wrong with them is said by
// name and not found out by the first client that fails.
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
  std::string until;                // when the certificate ends, for people
  std::string out_of_date;          // why clients will refuse the certificate today, or it them; empty: they will not
  std::string out_of_date_setting;  // whose file that is
};

// INVALID_ARGUMENT names the file and what is wrong: it is not there, is not to be read, everybody may write it, or
// read the key; it is not PEM of what it should be; the key needs a password or does not fit the certificate; the
// certificate is not for servers. The status' metadata say under "setting" whose file it is.
Result<TlsMaterial> ReadTls(const TlsFiles& files);

}  // namespace arraybridge
