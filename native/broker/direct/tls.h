// TLS of the direct client, by OpenSSL.
#pragma once

#include <memory>
#include <string>

#include "broker/direct/settings.h"

struct ssl_ctx_st;
struct ssl_st;

namespace millrace::broker::direct {

// Authorities, certificate and key, shared by all connections.
class TlsContext {
 public:
  // Null, with `error` set, for a file or text that cannot be used.
  static std::unique_ptr<TlsContext> Make(const TlsSettings& settings, std::string* error);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  explicit TlsContext(const TlsSettings& settings) : settings_(settings) {}
  bool LoadAuthorities(std::string* error);
  bool LoadIdentity(std::string* error);
  bool LoadKeystore(std::string* error);

  TlsSettings settings_;
  ssl_ctx_st* context_ = nullptr;
};

enum class Io { kDone, kWantsRead, kWantsWrite, kClosed, kFailed };

// One connection over a socket that does not block.
class TlsStream {
 public:
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;
  // The socket is borrowed. Null, with `error` set, on failure.
  static std::unique_ptr<TlsStream> Open(const TlsContext& context, int socket,
                                         const std::string& host, std::string* error);
  Io Handshake(std::string* error);
  Io Read(void* into, std::size_t size, std::size_t* done, std::string* error);
  Io Write(const void* from, std::size_t size, std::size_t* done, std::string* error);

 private:
  TlsStream() = default;
  Io Outcome(int code, std::string* error);

  ssl_st* stream_ = nullptr;
};

}  // namespace millrace::broker::direct
