#include "broker/direct/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstring>

namespace millrace::broker::direct {
namespace {

// Bundles of authorities where distributions keep them: OpenSSL's own default depends on how it was
// built.
constexpr const char* kBundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
};

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Bio = std::unique_ptr<BIO, FreeBio>;

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string Reason() {
  const unsigned long code = ERR_peek_last_error();
  char text[160] = "no reason is known";
  if (code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

int GivePassword(char* into, int size, int, void* opaque) {
  const auto* password = static_cast<const std::string*>(opaque);
  if (password->size() > static_cast<std::size_t>(size)) return 0;
  std::memcpy(into, password->data(), password->size());
  return static_cast<int>(password->size());
}

bool AddAuthorities(SSL_CTX* context, const std::string& pem) {
  const Bio bio = BioOf(pem);
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  int count = 0;
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    X509_STORE_add_cert(store, one);
    X509_free(one);
    count++;
  }
  ERR_clear_error();
  return count > 0;
}

bool UseChain(SSL_CTX* context, const std::string& pem) {
  const Bio bio = BioOf(pem);
  X509* own = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr);
  if (own == nullptr) return false;
  const bool is_used = SSL_CTX_use_certificate(context, own) == 1;
  X509_free(own);
  // The context owns the others.
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    if (SSL_CTX_add_extra_chain_cert(context, one) != 1) X509_free(one);
  }
  ERR_clear_error();
  return is_used;
}

bool UseKey(SSL_CTX* context, const std::string& pem, std::string* password) {
  const Bio bio = BioOf(pem);
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio.get(), nullptr, GivePassword, password);
  if (key == nullptr) return false;
  const bool is_used = SSL_CTX_use_PrivateKey(context, key) == 1;
  EVP_PKEY_free(key);
  return is_used;
}

// Uses the certificate, the chain and the key of a PKCS#12 file.
bool UseKeystore(SSL_CTX* context, const std::string& path, const std::string& password) {
  const Bio bio(BIO_new_file(path.c_str(), "rb"));
  PKCS12* store = bio == nullptr ? nullptr : d2i_PKCS12_bio(bio.get(), nullptr);
  if (store == nullptr) return false;
  EVP_PKEY* key = nullptr;
  X509* certificate = nullptr;
  STACK_OF(X509)* chain = nullptr;
  const bool is_read = PKCS12_parse(store, password.c_str(), &key, &certificate, &chain) == 1;
  PKCS12_free(store);
  const bool is_used = is_read && key != nullptr && certificate != nullptr &&
                       SSL_CTX_use_cert_and_key(context, certificate, key, chain, 1) == 1;
  EVP_PKEY_free(key);
  X509_free(certificate);
  sk_X509_pop_free(chain, X509_free);
  return is_used;
}

bool IsAddress(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

bool TlsContext::LoadAuthorities(std::string* error) {
  const std::string& location = settings_.ca_location;
  if (!settings_.ca_pem.empty()) {
    if (AddAuthorities(context_, settings_.ca_pem)) return true;
    *error = "ssl.ca.pem has no certificate";
    return false;
  }
  if (!location.empty() && location != "probe") {
    struct stat found{};
    const bool is_folder = stat(location.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
    if (SSL_CTX_load_verify_locations(context_, is_folder ? nullptr : location.c_str(),
                                      is_folder ? location.c_str() : nullptr) == 1)
      return true;
    *error = "ssl.ca.location cannot be used: " + Reason();
    return false;
  }
  SSL_CTX_set_default_verify_paths(context_);
  for (const char* bundle : kBundles) {
    struct stat found{};
    if (stat(bundle, &found) != 0) continue;
    SSL_CTX_load_verify_locations(context_, bundle, nullptr);
    break;
  }
  ERR_clear_error();
  return true;
}

bool TlsContext::LoadIdentity(std::string* error) {
  TlsSettings& own = settings_;
  if (!own.certificate_pem.empty() && !UseChain(context_, own.certificate_pem)) {
    *error = "ssl.certificate.pem cannot be used: " + Reason();
    return false;
  }
  if (!own.certificate_location.empty() &&
      SSL_CTX_use_certificate_chain_file(context_, own.certificate_location.c_str()) != 1) {
    *error = "ssl.certificate.location cannot be used: " + Reason();
    return false;
  }
  SSL_CTX_set_default_passwd_cb(context_, GivePassword);
  SSL_CTX_set_default_passwd_cb_userdata(context_, &own.key_password);
  if (!own.key_pem.empty() && !UseKey(context_, own.key_pem, &own.key_password)) {
    *error = "ssl.key.pem cannot be used: " + Reason();
    return false;
  }
  if (!own.key_location.empty() &&
      SSL_CTX_use_PrivateKey_file(context_, own.key_location.c_str(), SSL_FILETYPE_PEM) != 1) {
    *error = "ssl.key.location cannot be used: " + Reason();
    return false;
  }
  return own.keystore_location.empty() || LoadKeystore(error);
}

bool TlsContext::LoadKeystore(std::string* error) {
  if (UseKeystore(context_, settings_.keystore_location, settings_.keystore_password)) return true;
  *error = "ssl.keystore.location cannot be used: " + Reason();
  return false;
}

std::unique_ptr<TlsContext> TlsContext::Make(const TlsSettings& settings, std::string* error) {
  std::unique_ptr<TlsContext> made(new TlsContext(settings));
  made->context_ = SSL_CTX_new(TLS_client_method());
  if (made->context_ == nullptr) {
    *error = "TLS is not available: " + Reason();
    return nullptr;
  }
  SSL_CTX_set_min_proto_version(made->context_, TLS1_2_VERSION);
  SSL_CTX_set_mode(made->context_,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(made->context_, settings.verifies ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                     nullptr);
  if (!made->LoadAuthorities(error) || !made->LoadIdentity(error)) return nullptr;
  return made;
}

TlsStream::~TlsStream() { SSL_free(stream_); }

std::unique_ptr<TlsStream> TlsStream::Open(const TlsContext& context, int socket,
                                           const std::string& host, std::string* error) {
  std::unique_ptr<TlsStream> made(new TlsStream());
  made->stream_ = SSL_new(context.context_);
  SSL* stream = made->stream_;
  if (stream == nullptr || SSL_set_fd(stream, socket) != 1) {
    *error = Reason();
    return nullptr;
  }
  const bool is_address = IsAddress(host);
  if (!is_address) SSL_set_tlsext_host_name(stream, host.c_str());
  if (context.settings_.verifies && context.settings_.checks_name) {
    X509_VERIFY_PARAM* verified = SSL_get0_param(stream);
    const int is_set = is_address ? X509_VERIFY_PARAM_set1_ip_asc(verified, host.c_str())
                                  : X509_VERIFY_PARAM_set1_host(verified, host.c_str(), 0);
    if (is_set != 1) {
      *error = Reason();
      return nullptr;
    }
  }
  SSL_set_connect_state(stream);
  return made;
}

Io TlsStream::Outcome(int code, std::string* error) {
  switch (SSL_get_error(stream_, code)) {
    case SSL_ERROR_WANT_READ:
      return Io::kWantsRead;
    case SSL_ERROR_WANT_WRITE:
      return Io::kWantsWrite;
    case SSL_ERROR_ZERO_RETURN:
      return Io::kClosed;
    case SSL_ERROR_SYSCALL:
      if (ERR_peek_error() == 0) return Io::kClosed;
      [[fallthrough]];
    default:
      break;
  }
  const long verified = SSL_get_verify_result(stream_);
  *error = Reason();
  if (verified != X509_V_OK)
    *error = std::string("certificate verify failed: ") + X509_verify_cert_error_string(verified);
  return Io::kFailed;
}

Io TlsStream::Handshake(std::string* error) {
  ERR_clear_error();
  const int code = SSL_do_handshake(stream_);
  return code == 1 ? Io::kDone : Outcome(code, error);
}

Io TlsStream::Read(void* into, std::size_t size, std::size_t* done, std::string* error) {
  ERR_clear_error();
  const int code = SSL_read_ex(stream_, into, size, done);
  return code == 1 ? Io::kDone : Outcome(code, error);
}

Io TlsStream::Write(const void* from, std::size_t size, std::size_t* done, std::string* error) {
  ERR_clear_error();
  const int code = SSL_write_ex(stream_, from, size, done);
  return code == 1 ? Io::kDone : Outcome(code, error);
}

}  // namespace millrace::broker::direct
