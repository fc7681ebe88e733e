#include "broker/direct/connection.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "broker/receipts.h"
#include "broker/wire/messages.h"

namespace millrace::broker::direct {
namespace {

// Error numbers of librdkafka.
constexpr int kErrBadMessage = -199;
constexpr int kErrTransport = -195;
constexpr int kErrAuthentication = -169;
constexpr int kErrUnsupported = -165;

// Kind of the requests that the connection sends itself.
constexpr Connection::Kind kOwn = -1;
// Share of a login's lifetime after which the connection is renewed.
constexpr double kLifetimeShare = 0.85;
// A correlation is the least that a response has.
constexpr std::int32_t kResponseBytesMin = 4;

}  // namespace

std::unique_ptr<Frame> FramePool::Take(std::size_t size) {
  std::unique_ptr<Frame> taken;
  for (auto at = frames_.begin(); at != frames_.end(); ++at) {
    if ((*at)->capacity < size) continue;
    taken = std::move(*at);
    frames_.erase(at);
    break;
  }
  if (taken == nullptr) {
    taken = std::make_unique<Frame>();
    taken->bytes.reset(new std::uint8_t[size]);
    taken->capacity = size;
  }
  taken->size = size;
  return taken;
}

// Keeps the largest.
void FramePool::Return(std::unique_ptr<Frame> frame) {
  frames_.push_back(std::move(frame));
  if (frames_.size() <= kFramesMax) return;
  frames_.erase(std::min_element(frames_.begin(), frames_.end(), [](const auto& a, const auto& b) {
    return a->capacity < b->capacity;
  }));
}

Connection::Connection(const Settings& settings, const TlsContext* tls, FramePool* pool,
                       const Endpoint& endpoint, const Wakeup& wakeup, std::int64_t now_ms,
                       std::size_t first_address)
    : settings_(settings),
      pool_(pool),
      address_(endpoint.host + ":" + std::to_string(endpoint.port)),
      socket_(endpoint, tls, settings.keeps_alive, wakeup, first_address),
      now_ms_(now_ms),
      open_deadline_ms_(now_ms + settings.connect_timeout_ms) {}

void Connection::Fail(int code, std::string text) {
  if (state_ == State::kFailed) return;
  state_ = State::kFailed;
  error_code_ = code;
  error_ = address_ + ": " + std::move(text);
}

Connection::State Connection::Drive(std::int64_t now_ms) {
  now_ms_ = now_ms;
  if (state_ == State::kFailed) return state_;
  if (step_ == Step::kSocket) {
    const Socket::State socket = socket_.Open();
    if (socket == Socket::State::kFailed) Fail(socket_.error_code(), socket_.error());
    if (socket == Socket::State::kOpen) {
      step_ = Step::kVersions;
      SendOwn(wire::ApiVersionsRequest(NextCorrelation(), settings_.client_id));
    }
  }
  if (state_ != State::kFailed && step_ != Step::kSocket) {
    Flush();
    if (state_ != State::kFailed) Read();
    if (state_ != State::kFailed) Flush();
  }
  if (state_ != State::kFailed && deadline_ms() <= now_ms) {
    Fail(kErrTransport, state_ == State::kOpening ? "the connection was not ready in time"
                                                  : "the broker did not answer a request in time");
  }
  return state_;
}

std::int64_t Connection::deadline_ms() const {
  if (state_ == State::kOpening) return open_deadline_ms_;
  return in_flight_.empty() ? INT64_MAX : in_flight_.front().deadline_ms;
}

bool Connection::Poll(pollfd* out) const {
  if (state_ == State::kFailed || socket_.descriptor() < 0) return false;
  *out = {socket_.descriptor(), POLLIN, 0};
  if (step_ == Step::kSocket) {
    out->events = socket_.opening_events();
  } else if (out_sent_ < out_.size()) {
    out->events |= POLLOUT;
  }
  return true;
}

void Connection::Send(std::string request, Kind kind, std::int64_t now_ms, int wait_ms) {
  in_flight_.push_back({correlation_, kind, now_ms + settings_.request_timeout_ms + wait_ms});
  if (out_sent_ == out_.size()) {
    out_ = std::move(request);
    out_sent_ = 0;
  } else {
    out_ += request;
  }
  Flush();
}

void Connection::SendOwn(std::string request) { Send(std::move(request), kOwn, now_ms_); }

std::unique_ptr<Frame> Connection::Receive(Kind* kind) {
  if (received_.empty()) return nullptr;
  *kind = received_.front().first;
  std::unique_ptr<Frame> frame = std::move(received_.front().second);
  received_.pop_front();
  return frame;
}

void Connection::Flush() {
  while (out_sent_ < out_.size()) {
    std::size_t done = 0;
    const Io outcome = socket_.Write(out_.data() + out_sent_, out_.size() - out_sent_, &done);
    if (outcome == Io::kWantsRead || outcome == Io::kWantsWrite) return;
    if (outcome == Io::kFailed || outcome == Io::kClosed) {
      Fail(kErrTransport, "send failed: " + socket_.error());
      return;
    }
    out_sent_ += done;
  }
}

// Reads up to `size` bytes in all. False when they are not complete.
bool Connection::ReadInto(std::uint8_t* into, std::size_t size, std::size_t* have) {
  while (*have < size) {
    std::size_t done = 0;
    const Io outcome = socket_.Read(into + *have, size - *have, &done);
    if (outcome == Io::kWantsRead || outcome == Io::kWantsWrite) return false;
    if (outcome == Io::kClosed) {
      closed_idle_ = state_ == State::kReady && in_flight_.empty();
      Fail(kErrTransport, step_ == Step::kAuthentication || step_ == Step::kHandshake
                              ? "the broker closed the connection during the authentication"
                              : "the broker closed the connection");
      return false;
    }
    if (outcome == Io::kFailed) {
      Fail(kErrTransport, "receive failed: " + socket_.error());
      return false;
    }
    *have += done;
  }
  return true;
}

void Connection::Read() {
  while (state_ != State::kFailed) {
    if (partial_ == nullptr) {
      if (!ReadInto(size_bytes_, sizeof size_bytes_, &size_have_)) return;
      const auto size = wire::BigEndian<std::int32_t>(size_bytes_);
      if (size < kResponseBytesMin || size > settings_.response_bytes_max) {
        refused_size_ = size > 0;
        Fail(kErrBadMessage, "a response of " + std::to_string(size) +
                                 " bytes is refused: receive.message.max.bytes is " +
                                 std::to_string(settings_.response_bytes_max));
        return;
      }
      partial_ = pool_->Take(static_cast<std::size_t>(size));
      partial_have_ = 0;
    }
    if (!ReadInto(partial_->bytes.get(), partial_->size, &partial_have_)) return;
    size_have_ = 0;
    Accept(std::move(partial_));
  }
}

void Connection::Accept(std::unique_ptr<Frame> frame) {
  frame->received_us = NowUs();
  const auto correlation = wire::BigEndian<std::int32_t>(frame->bytes.get());
  if (in_flight_.empty() || in_flight_.front().correlation != correlation) {
    Fail(kErrBadMessage, "the broker answered a request that is not the next");
    return;
  }
  const Kind kind = in_flight_.front().kind;
  in_flight_.pop_front();
  if (kind != kOwn) {
    received_.emplace_back(kind, std::move(frame));
    return;
  }
  if (step_ == Step::kVersions) {
    OnVersions(*frame);
  } else if (step_ == Step::kHandshake) {
    OnHandshake(*frame);
  } else if (step_ == Step::kAuthentication) {
    OnAuthenticated(*frame);
  }
  pool_->Return(std::move(frame));
}

void Connection::OnVersions(const Frame& frame) {
  std::int16_t error = 0;
  std::vector<wire::ApiRange> ranges;
  if (!wire::ReadApiVersions(frame.Body(), &error, &ranges)) {
    Fail(kErrBadMessage, "the answer to ApiVersions is not one");
  } else if (error != wire::kNoError) {
    Fail(kErrUnsupported, "the broker refuses ApiVersions: " + EventOf(error).message);
  } else if (std::string missing = wire::MissingApi(ranges); !missing.empty()) {
    Fail(kErrUnsupported, std::move(missing));
  } else if (settings_.sasl.is_on) {
    BeginAuthentication();
  } else {
    step_ = Step::kReady;
    state_ = State::kReady;
  }
}

void Connection::BeginAuthentication() {
  const SaslSettings& own = settings_.sasl;
  const std::string nonce = wire::MakeNonce();
  sasl_ = nonce.empty() ? nullptr : wire::MakeSasl(own.mechanism, own.user, own.password, nonce);
  if (sasl_ == nullptr) {
    Fail(kErrUnsupported, "the direct client has no SASL mechanism " + own.mechanism);
    return;
  }
  step_ = Step::kHandshake;
  SendOwn(wire::SaslHandshakeRequest(NextCorrelation(), settings_.client_id, own.mechanism));
}

void Connection::OnHandshake(const Frame& frame) {
  wire::SaslHandshake answer;
  if (!wire::ReadSaslHandshake(frame.Body(), &answer)) {
    Fail(kErrBadMessage, "the answer to SaslHandshake is not one");
  } else if (answer.error != wire::kNoError) {
    Fail(kErrAuthentication, "unsupported SASL mechanism " + settings_.sasl.mechanism +
                                 ": the broker has " + answer.mechanisms);
  } else {
    step_ = Step::kAuthentication;
    SendOwn(wire::SaslAuthenticateRequest(NextCorrelation(), settings_.client_id, sasl_->First()));
  }
}

void Connection::OnAuthenticated(const Frame& frame) {
  wire::SaslAnswer answer;
  if (!wire::ReadSaslAuthenticate(frame.Body(), &answer)) {
    Fail(kErrBadMessage, "the answer to SaslAuthenticate is not one");
    return;
  }
  if (answer.error != wire::kNoError) {
    Fail(kErrAuthentication, "SASL authentication error: " + std::string(answer.text));
    return;
  }
  std::string why;
  std::string reply;
  if (!sasl_->Answer(answer.message, &reply, &sasl_done_, &why)) {
    Fail(kErrAuthentication, "SASL authentication error: " + why);
    return;
  }
  if (!sasl_done_) {
    SendOwn(wire::SaslAuthenticateRequest(NextCorrelation(), settings_.client_id, reply));
    return;
  }
  sasl_.reset();
  step_ = Step::kReady;
  state_ = State::kReady;
  if (answer.lifetime_ms > 0) {
    const double lifetime =
        static_cast<double>(std::min<std::int64_t>(answer.lifetime_ms, INT32_MAX));
    expires_ms_ = now_ms_ + static_cast<std::int64_t>(lifetime * kLifetimeShare);
  }
}

}  // namespace millrace::broker::direct
