// TCP connection that never blocks: resolution on a thread of its own, connect, TLS, bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "broker/direct/tls.h"
#include "broker/direct/turns.h"

namespace millrace::broker::direct {

// Pipe that wakes a poll.
class Wakeup {
 public:
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;
  bool is_open() const { return ends_[0] >= 0; }
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  // From any thread.
  void Wake();
  void Drain();

 private:
  int ends_[2] = {-1, -1};
};

class Socket {
 public:
  enum class State { kResolving, kConnecting, kTls, kOpen, kFailed };
  // `tls` may be null. `wakeup` is written to when the name was resolved. The addresses of the host
  // are tried in turn from number `first_address`, modulo their number.
  Socket(const Endpoint& endpoint, const TlsContext* tls, bool keeps_alive, const Wakeup& wakeup,
         std::size_t first_address);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // Continues opening as far as possible without waiting.
  State Open();
  // Bytes read or written; `kWants…` when none can be without waiting.
  Io Read(void* into, std::size_t size, std::size_t* done);
  Io Write(const void* from, std::size_t size, std::size_t* done);
  // -1 while the name is resolved.
  int descriptor() const { return socket_; }
  // Number of the address behind the last one that was tried.
  std::size_t next_address() const { return turns_.next(); }
  // Events to poll for while opening.
  short opening_events() const { return events_; }
  int error_code() const { return error_code_; }
  const std::string& error() const { return error_; }

 private:
  struct Resolution;
  void Resolve(const Wakeup& wakeup);
  bool Connect();
  void Finish();
  State Fail(int code, std::string text);
  void Close();

  Endpoint endpoint_;
  const TlsContext* tls_;
  bool keeps_alive_;
  std::shared_ptr<Resolution> resolution_;
  AddressTurns turns_;
  State state_ = State::kResolving;
  int socket_ = -1;
  short events_ = 0;
  std::unique_ptr<TlsStream> stream_;
  int error_code_ = 0;
  std::string error_;
};

}  // namespace millrace::broker::direct
