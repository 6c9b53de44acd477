// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/files/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/config/files/setting_file.h"

namespace arraybridge {
namespace {

struct Free {
  void operator()(BIO* bio) const { ::BIO_free(bio); }
  void operator()(X509* one) const { ::X509_free(one); }
  void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

Result<std::string> ReadFile(const std::string& path, mode_t forbidden, std::string_view because) {
  const UniqueFd file = OpenSettingFile(path);
  if (!file.valid()) return InvalidArgument(path, ": ", std::strerror(errno));
  return ReadSettingFile(file, path, forbidden, because);
}

// Without this callback OpenSSL would prompt for a password on the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

Bio Over(const std::string& pem) { return Bio(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }

// Reads all certificates. A truncated certificate after a good one is an error.
Result<std::vector<Certificate>> CertificatesIn(const std::string& path, const std::string& pem) {
  std::vector<Certificate> all;
  const Bio bio = Over(pem);
  ::ERR_clear_error();
  while (X509* const one = ::PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)) all.emplace_back(one);
  const bool at_end = ERR_GET_REASON(::ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ::ERR_clear_error();
  if (all.empty()) return InvalidArgument(path, ": holds no certificate in PEM");
  if (!at_end) return InvalidArgument(path, ": the text after certificate ", all.size(), " is not PEM");
  return all;
}

Result<Key> KeyIn(const std::string& path, const std::string& pem) {
  Key key(::PEM_read_bio_PrivateKey(Over(pem).get(), nullptr, NoPassword, nullptr));
  ::ERR_clear_error();
  if (key != nullptr) return key;
  const bool locked = pem.find("ENCRYPTED") != std::string::npos;
  return InvalidArgument(path, locked ? ": the private key needs a password, which the daemon cannot ask for"
                                      : ": holds no private key in PEM");
}

std::string Written(const ASN1_TIME* time) {
  std::tm parts{};
  if (::ASN1_TIME_to_tm(time, &parts) != 1) return "a time that cannot be read";
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

// Empty if the certificate is valid now.
std::string OutOfDate(const X509* one) {
  if (::X509_cmp_current_time(::X509_get0_notAfter(one)) <= 0) {
    return "expired on " + Written(::X509_get0_notAfter(one));
  }
  if (::X509_cmp_current_time(::X509_get0_notBefore(one)) > 0) {
    return "is not valid before " + Written(::X509_get0_notBefore(one));
  }
  return {};
}

Status ReadCertificate(const std::string& path, TlsMaterial* material, Certificate* own) {
  auto text = ReadFile(path, S_IWOTH, "other users may write it (chmod o-w)");
  if (!text.ok()) return text.status();
  auto chain = CertificatesIn(path, *text);
  if (!chain.ok()) return chain.status();
  *own = std::move(chain->front());
  if (::X509_check_purpose(own->get(), X509_PURPOSE_SSL_SERVER, 0) != 1) {
    return InvalidArgument(path, ": the certificate is not for servers (its key usage says so)");
  }
  material->cert = *std::move(text);
  material->until = Written(::X509_get0_notAfter(own->get()));
  if (const std::string why = OutOfDate(own->get()); !why.empty()) {
    material->out_of_date = Concat(path, ": the certificate ", why);
    material->out_of_date_setting = "server.tls.cert";
  }
  return Ok();
}

Status ReadKey(const std::string& path, const TlsFiles& files, const X509* own, TlsMaterial* material) {
  auto text = ReadFile(path, S_IROTH | S_IWOTH, "other users may read or write it (chmod o-rw)");
  if (!text.ok()) return text.status();
  const auto key = KeyIn(path, *text);
  if (!key.ok()) return key.status();
  if (::X509_check_private_key(own, key->get()) != 1) {
    ::ERR_clear_error();
    return InvalidArgument(path, ": the private key does not match the certificate in ", files.cert);
  }
  material->key = *std::move(text);
  return Ok();
}

Status ReadAuthorities(const std::string& path, TlsMaterial* material) {
  auto text = ReadFile(path, S_IWOTH, "other users may write it (chmod o-w)");
  if (!text.ok()) return text.status();
  const auto all = CertificatesIn(path, *text);
  if (!all.ok()) return all.status();
  material->client_ca = *std::move(text);
  std::string why;
  for (const Certificate& one : *all) {
    why = OutOfDate(one.get());
    if (why.empty()) return Ok();  // during a rotation an old authority may remain beside the new one
  }
  if (!material->out_of_date.empty()) return Ok();
  material->out_of_date = Concat(path, ": the authority's certificate ", why);
  material->out_of_date_setting = "server.tls.client_ca";
  return Ok();
}

Status Of(std::string_view setting, Status status) {
  return status.ok() ? status : std::move(status).With("setting", Concat("server.tls.", setting));
}

}  // namespace

Result<TlsMaterial> ReadTls(const TlsFiles& files) {
  TlsMaterial material;
  Certificate own;
  AB_RETURN_IF_ERROR(Of("cert", ReadCertificate(files.cert, &material, &own)));
  AB_RETURN_IF_ERROR(Of("key", ReadKey(files.key, files, own.get(), &material)));
  AB_RETURN_IF_ERROR(Of("client_ca", ReadAuthorities(files.client_ca, &material)));
  return material;
}

}  // namespace arraybridge
