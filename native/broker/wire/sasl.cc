#include "broker/wire/sasl.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace millrace::broker::wire {
namespace {

constexpr std::size_t kNonceBytes = 24;
// Bounds of the broker's iteration count: below the RFC's least a password is easily guessed, and
// above the greatest a hostile broker would keep a processor busy.
constexpr int kIterationsMin = 4096;
constexpr int kIterationsMax = 1'000'000;
constexpr std::size_t kSaltBytesMax = 1024;

using Text = std::string;

const unsigned char* Raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Text Base64(std::string_view bytes) {
  Text out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), Raw(bytes),
                                   static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(size));
  return out;
}

// False for text that is not base64.
bool FromBase64(std::string_view text, Text* out) {
  if (text.empty() || text.size() % 4 != 0 || text.size() > 4 * kSaltBytesMax) return false;
  out->assign(3 * text.size() / 4 + 1, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out->data()), Raw(text),
                                   static_cast<int>(text.size()));
  if (size < 0) return false;
  std::size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') padding++;
  out->resize(static_cast<std::size_t>(size) - padding);
  return true;
}

// Value of an attribute such as `r=`; empty without it.
std::string_view Attribute(std::string_view message, char name) {
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t end = std::min(message.find(',', at), message.size());
    const std::string_view one = message.substr(at, end - at);
    if (one.size() >= 2 && one[0] == name && one[1] == '=') return one.substr(2);
    at = end + 1;
  }
  return {};
}

Text Escaped(std::string_view user) {
  Text out;
  for (const char c : user) {
    if (c == ',') {
      out += "=2C";
    } else if (c == '=') {
      out += "=3D";
    } else {
      out += c;
    }
  }
  return out;
}

class Plain final : public SaslExchange {
 public:
  Plain(std::string_view user, std::string_view password) : user_(user), password_(password) {}
  std::string First() override { return '\0' + user_ + '\0' + password_; }
  bool Answer(std::string_view, std::string*, bool* done, std::string*) override {
    *done = true;
    return true;
  }

 private:
  Text user_;
  Text password_;
};

class Scram final : public SaslExchange {
 public:
  Scram(const EVP_MD* digest, std::string_view user, std::string_view password,
        std::string_view nonce)
      : digest_(digest), bare_("n=" + Escaped(user) + ",r=" + Text(nonce)), nonce_(nonce),
        password_(password) {}
  std::string First() override { return "n,," + bare_; }
  bool Answer(std::string_view message, std::string* reply, bool* done,
              std::string* error) override {
    if (verifier_.empty()) return Prove(message, reply, error);
    *done = true;
    Text given;
    const std::string_view signature = Attribute(message, 'v');
    if (!FromBase64(signature, &given) || given.size() != verifier_.size() ||
        CRYPTO_memcmp(given.data(), verifier_.data(), given.size()) != 0) {
      *error = "the broker did not prove that it knows the password";
      return false;
    }
    return true;
  }

 private:
  Text Hmac(std::string_view key, std::string_view data) const {
    Text out(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    HMAC(digest_, key.data(), static_cast<int>(key.size()), Raw(data), data.size(),
         reinterpret_cast<unsigned char*>(out.data()), &size);
    out.resize(size);
    return out;
  }
  Text Hash(std::string_view data) const {
    Text out(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    EVP_Digest(data.data(), data.size(), reinterpret_cast<unsigned char*>(out.data()), &size,
               digest_, nullptr);
    out.resize(size);
    return out;
  }
  bool Prove(std::string_view message, std::string* reply, std::string* error);

  const EVP_MD* digest_;
  Text bare_;
  Text nonce_;
  Text password_;
  // Signature that the broker must send, once the proof was made.
  Text verifier_;
};

bool Scram::Prove(std::string_view message, std::string* reply, std::string* error) {
  const std::string_view nonce = Attribute(message, 'r');
  const Text iterations(Attribute(message, 'i'));
  const long count = std::strtol(iterations.c_str(), nullptr, 10);
  Text salt;
  if (nonce.size() <= nonce_.size() || nonce.substr(0, nonce_.size()) != nonce_ ||
      !FromBase64(Attribute(message, 's'), &salt)) {
    *error = "the broker sent a SCRAM message that is not one";
    return false;
  }
  if (count < kIterationsMin || count > kIterationsMax) {
    *error = "the broker asks for " + std::to_string(count) + " SCRAM iterations; from " +
             std::to_string(kIterationsMin) + " to " + std::to_string(kIterationsMax) +
             " are accepted";
    return false;
  }
  Text salted(static_cast<std::size_t>(EVP_MD_get_size(digest_)), '\0');
  if (PKCS5_PBKDF2_HMAC(password_.data(), static_cast<int>(password_.size()), Raw(salt),
                        static_cast<int>(salt.size()), static_cast<int>(count), digest_,
                        static_cast<int>(salted.size()),
                        reinterpret_cast<unsigned char*>(salted.data())) != 1) {
    *error = "the SCRAM key could not be derived";
    return false;
  }
  const Text client_key = Hmac(salted, "Client Key");
  const Text without_proof = "c=biws,r=" + Text(nonce);
  const Text signed_text = bare_ + "," + Text(message) + "," + without_proof;
  Text proof = Hmac(Hash(client_key), signed_text);
  for (std::size_t i = 0; i < proof.size(); i++) {
    proof[i] = static_cast<char>(proof[i] ^ client_key[i]);
  }
  verifier_ = Hmac(Hmac(salted, "Server Key"), signed_text);
  *reply = without_proof + ",p=" + Base64(proof);
  return true;
}

}  // namespace

std::unique_ptr<SaslExchange> MakeSasl(std::string_view mechanism, std::string_view user,
                                       std::string_view password, std::string_view nonce) {
  if (mechanism == "PLAIN") return std::make_unique<Plain>(user, password);
  if (mechanism == "SCRAM-SHA-256")
    return std::make_unique<Scram>(EVP_sha256(), user, password, nonce);
  if (mechanism == "SCRAM-SHA-512")
    return std::make_unique<Scram>(EVP_sha512(), user, password, nonce);
  return nullptr;
}

std::string MakeNonce() {
  unsigned char bytes[kNonceBytes];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return {};
  return Base64({reinterpret_cast<const char*>(bytes), sizeof bytes});
}

}  // namespace millrace::broker::wire
