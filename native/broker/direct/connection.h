// Connection to one broker: opened, checked for the needed requests, authenticated, then requests
// in order and their responses in the same order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "broker/direct/settings.h"
#include "broker/direct/socket.h"
#include "broker/wire/reader.h"
#include "broker/wire/sasl.h"

struct pollfd;

namespace millrace::broker::direct {

// One response. Its memory is reused; see FramePool.
struct Frame {
  std::unique_ptr<std::uint8_t[]> bytes;
  std::size_t capacity = 0;
  std::size_t size = 0;
  // From NowUs.
  std::int64_t received_us = 0;
  wire::Bytes Body() const { return {bytes.get(), size}; }
};

// Memory of responses, kept because a new allocation of megabytes costs a page fault for each page.
class FramePool {
 public:
  std::unique_ptr<Frame> Take(std::size_t size);
  void Return(std::unique_ptr<Frame> frame);

 private:
  static constexpr std::size_t kFramesMax = 4;
  std::vector<std::unique_ptr<Frame>> frames_;
};

class Connection {
 public:
  enum class State { kOpening, kReady, kFailed };
  // Number that the caller gives a request, and gets back with its response.
  using Kind = int;

  Connection(const Settings& settings, const TlsContext* tls, FramePool* pool,
             const Endpoint& endpoint, const Wakeup& wakeup, std::int64_t now_ms,
             std::size_t first_address);

  // Sends and receives what is possible without waiting.
  State Drive(std::int64_t now_ms);
  State state() const { return state_; }
  // REQUIRES: ready. `request` has the correlation of NextCorrelation. The broker may wait
  // `wait_ms` before it begins to answer.
  std::int32_t NextCorrelation() { return ++correlation_; }
  void Send(std::string request, Kind kind, std::int64_t now_ms, int wait_ms = 0);
  // Next complete response; null when there is none.
  std::unique_ptr<Frame> Receive(Kind* kind);
  bool HasRequests() const { return !in_flight_.empty(); }
  // Time at which the broker wants the client to authenticate again.
  std::int64_t expires_ms() const { return expires_ms_; }
  // False without a descriptor to poll.
  bool Poll(pollfd* out) const;
  // Time of the next timeout.
  std::int64_t deadline_ms() const;
  int error_code() const { return error_code_; }
  const std::string& error() const { return error_; }
  std::size_t next_address() const { return socket_.next_address(); }
  // True when the connection failed at a response above the limit.
  bool refused_size() const { return refused_size_; }
  // True when the broker ended a connection on which it owed nothing.
  bool closed_idle() const { return closed_idle_; }

 private:
  enum class Step { kSocket, kVersions, kHandshake, kAuthentication, kReady };
  struct InFlight {
    std::int32_t correlation;
    Kind kind;
    std::int64_t deadline_ms;
  };

  void Fail(int code, std::string text);
  void Flush();
  void Read();
  bool ReadInto(std::uint8_t* into, std::size_t size, std::size_t* have);
  void Accept(std::unique_ptr<Frame> frame);
  void BeginAuthentication();
  void OnVersions(const Frame& frame);
  void OnHandshake(const Frame& frame);
  void OnAuthenticated(const Frame& frame);
  void SendOwn(std::string request);

  const Settings& settings_;
  FramePool* pool_;
  std::string address_;
  Socket socket_;
  State state_ = State::kOpening;
  Step step_ = Step::kSocket;
  std::int64_t now_ms_;
  std::int64_t open_deadline_ms_;
  std::int64_t expires_ms_ = INT64_MAX;
  std::unique_ptr<wire::SaslExchange> sasl_;
  bool sasl_done_ = false;
  std::int32_t correlation_ = 0;
  std::string out_;
  std::size_t out_sent_ = 0;
  std::uint8_t size_bytes_[4] = {};
  std::size_t size_have_ = 0;
  std::unique_ptr<Frame> partial_;
  std::size_t partial_have_ = 0;
  std::deque<InFlight> in_flight_;
  std::deque<std::pair<Kind, std::unique_ptr<Frame>>> received_;
  int error_code_ = 0;
  std::string error_;
  bool refused_size_ = false;
  bool closed_idle_ = false;
};

}  // namespace millrace::broker::direct
