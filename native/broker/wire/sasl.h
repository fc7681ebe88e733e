// SASL mechanisms as exchanges of messages: PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512
// (RFC 5802, RFC 7677).
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace millrace::broker::wire {

class SaslExchange {
 public:
  virtual ~SaslExchange() = default;
  virtual std::string First() = 0;
  // Answers a message of the broker; `done`: nothing more is sent. False, with `error` set, for a
  // message that is not one of the mechanism, or a broker that does not know the password.
  virtual bool Answer(std::string_view message, std::string* reply, bool* done,
                      std::string* error) = 0;
};

// Null for another mechanism. `nonce`: printable text without a comma; tests give a fixed one.
std::unique_ptr<SaslExchange> MakeSasl(std::string_view mechanism, std::string_view user,
                                       std::string_view password, std::string_view nonce);
// A nonce from the random source of OpenSSL; empty without one.
std::string MakeNonce();

}  // namespace millrace::broker::wire
