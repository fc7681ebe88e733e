// orders.v1.Orders.Create over HTTP/2 without TLS, with many calls in flight on each connection.
//
// The subset of HTTP/2 (RFC 9113) and HPACK (RFC 7541) that a client of unary calls needs. Its
// header blocks use neither Huffman codes nor a dynamic table, and the server is asked to use no
// dynamic table. Of the answer only grpc-status, idempotency-replayed and the message are parsed.
#pragma once

#include "sockets.h"

namespace load {

// Huffman codes of RFC 7541, appendix B, for the characters of the names and values parsed here.
inline std::string Huffman(std::string_view text) {
  struct Code {
    char of;
    std::uint32_t code;
    int bits;
  };
  static constexpr Code kCodes[] = {{'0', 0x0, 5},  {'1', 0x1, 5},  {'2', 0x2, 5},  {'a', 0x3, 5},
                                    {'c', 0x4, 5},  {'e', 0x5, 5},  {'i', 0x6, 5},  {'o', 0x7, 5},
                                    {'s', 0x8, 5},  {'t', 0x9, 5},  {'-', 0x16, 6}, {'3', 0x19, 6},
                                    {'4', 0x1a, 6}, {'5', 0x1b, 6}, {'6', 0x1c, 6}, {'7', 0x1d, 6},
                                    {'8', 0x1e, 6}, {'9', 0x1f, 6}, {'d', 0x24, 6}, {'f', 0x25, 6},
                                    {'g', 0x26, 6}, {'l', 0x28, 6}, {'m', 0x29, 6}, {'n', 0x2a, 6},
                                    {'p', 0x2b, 6}, {'r', 0x2c, 6}, {'u', 0x2d, 6}, {'y', 0x7a, 7}};
  std::string out;
  std::uint64_t held = 0;
  int bits = 0;
  for (const char of : text) {
    for (const Code& one : kCodes) {
      if (one.of != of) continue;
      held = held << one.bits | one.code;
      bits += one.bits;
    }
    for (; bits >= 8; bits -= 8) out.push_back(static_cast<char>(held >> (bits - 8)));
  }
  if (bits > 0) out.push_back(static_cast<char>(held << (8 - bits) | (0xff >> bits)));
  return out;
}

// String of a header block in its encoded form.
struct Text {
  bool huffman = false;
  std::string_view bytes;
  bool Is(std::string_view plain, std::string_view coded) const {
    return bytes == (huffman ? coded : plain);
  }
};

// Parser of a header block without dynamic table references.
class HeaderBlock {
 public:
  explicit HeaderBlock(std::string_view block) : left_(block) {}

  // Reads the next field with a literal name; false at the end.
  bool Next(Text& name, Text& value) {
    while (!left_.empty()) {
      const auto first = static_cast<std::uint8_t>(left_[0]);
      if (first & 0x80) {
        Integer(7);
      } else if ((first & 0xe0) == 0x20) {
        Integer(5);
      } else {
        const std::size_t index = Integer(first & 0x40 ? 6 : 4);
        name = index == 0 ? String() : Text{};
        value = String();
        if (index == 0) return true;
      }
    }
    return false;
  }

 private:
  std::size_t Integer(int prefix) {
    if (left_.empty()) return 0;
    const std::size_t most = (1U << prefix) - 1;
    std::size_t value = static_cast<std::uint8_t>(left_[0]) & most;
    left_.remove_prefix(1);
    if (value < most) return value;
    for (int shift = 0; !left_.empty() && shift < 28; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(left_[0]);
      left_.remove_prefix(1);
      value += static_cast<std::size_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) break;
    }
    return value;
  }
  Text String() {
    if (left_.empty()) return {};
    Text text;
    text.huffman = (static_cast<std::uint8_t>(left_[0]) & 0x80) != 0;
    const std::size_t length = std::min(Integer(7), left_.size());
    text.bytes = left_.substr(0, length);
    left_.remove_prefix(length);
    return text;
  }

  std::string_view left_;
};

class Grpc : public Transport {
 public:
  Grpc(int epoll, std::string host, std::string port, std::size_t connections, double timeout_s)
      : server_(epoll, std::move(host), std::move(port)),
        timeout_(static_cast<std::int64_t>(timeout_s * 1e9)),
        connections_(connections) {
    for (int code = 0; code <= 16; code++) codes_[code] = Huffman(std::to_string(code));
    for (std::size_t i = 0; i < connections_.size(); i++) Open(i);
  }

  bool connected() const override {
    return std::any_of(connections_.begin(), connections_.end(),
                       [](const Connection& one) { return one.open(); });
  }
  bool in_flight() const override { return in_flight_ > 0; }

  void Pump(Run& run) override {
    // Each round gives every connection with capacity one call, so that the load spreads evenly.
    for (bool sent = true; sent && run.HasReady();) {
      sent = false;
      for (std::size_t i = 0; i < connections_.size() && run.HasReady(); i++) {
        Connection& one = connections_[turn_++ % connections_.size()];
        if (!one.open() || one.calls.size() >= kCallsMax) continue;
        Call(run, one);
        sent = true;
      }
    }
    for (std::size_t i = 0; i < connections_.size(); i++) Flush(run, i);
  }

  void OnEvent(Run& run, std::uint64_t what, std::uint32_t) override {
    const auto at = static_cast<std::size_t>(what);
    const char* why = Server::Read(connections_[at], [&] { return TakeFrames(run, at); });
    if (why != nullptr) Close(run, at, why);
    Flush(run, at);
  }

  void Check(Run& run) override {
    const std::int64_t now = run.Now();
    for (std::size_t at = 0; at < connections_.size(); at++) {
      Connection& one = connections_[at];
      const bool late = std::any_of(one.calls.begin(), one.calls.end(), [&](const auto& entry) {
        return now - entry.second.left > timeout_;
      });
      if (late) Close(run, at, "timeout");
      if (!one.open() && now >= one.again && !Open(at)) one.again = now + kReconnectNs;
    }
  }

 private:
  // Below the limit of 100 that servers usually grant.
  static constexpr std::size_t kCallsMax = 90;
  static constexpr std::uint32_t kWindow = 1U << 30;
  enum Type : std::uint8_t {
    kData = 0,
    kHeaders = 1,
    kReset = 3,
    kSettings = 4,
    kPing = 6,
    kGoAway = 7,
    kWindowUpdate = 8
  };
  static constexpr std::uint8_t kEndStream = 1;
  static constexpr std::uint8_t kAck = 1;
  static constexpr std::uint8_t kEndHeaders = 4;
  static constexpr std::uint8_t kPadded = 8;
  static constexpr std::uint8_t kPriority = 0x20;

  struct PendingCall {
    Send send;
    std::int64_t left;
    std::string message;
  };
  struct Connection : Socket {
    std::uint32_t next = 1;
    std::uint32_t taken = 0;  // bytes received since the last window update
    std::map<std::uint32_t, PendingCall> calls;
    std::string write;
  };

  static void Put32(std::string& out, std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
  }
  static void PutFrame(std::string& out, Type type, std::uint8_t flags, std::uint32_t stream,
                       std::string_view payload) {
    Put32(out, static_cast<std::uint32_t>(payload.size()) << 8 | type);
    out.push_back(static_cast<char>(flags));
    Put32(out, stream);
    out.append(payload);
  }
  // Literal field without indexing.
  static void PutField(std::string& out, std::string_view name, std::string_view value) {
    out.push_back(0);
    for (const std::string_view text : {name, value}) {
      out.push_back(static_cast<char>(text.size()));
      out.append(text);
    }
  }
  static void PutVarint(std::string& out, std::uint8_t tag, std::uint64_t value) {
    out.push_back(static_cast<char>(tag));
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
  }

  bool Open(std::size_t at) {
    Connection& one = connections_[at];
    if (!server_.Open(one, at)) return false;
    one.next = 1;
    one.taken = 0;
    one.write = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    std::string settings;
    for (const auto& [id, value] : {std::pair<int, std::uint32_t>{1, 0}, {2, 0}, {4, kWindow}}) {
      settings.push_back(0);
      settings.push_back(static_cast<char>(id));
      Put32(settings, value);
    }
    PutFrame(one.write, kSettings, 0, 0, settings);
    std::string window;
    Put32(window, kWindow);
    PutFrame(one.write, kWindowUpdate, 0, 0, window);
    return true;
  }

  void Close(Run& run, std::size_t at, const char* why) {
    Connection& one = connections_[at];
    Server::Close(one, run.Now());
    one.write.clear();
    for (const auto& [stream, call] : one.calls) {
      in_flight_--;
      run.Failed(call.send, why);
    }
    one.calls.clear();
  }

  void Call(Run& run, Connection& one) {
    const Send send = run.Front();
    const std::int64_t left = run.Now();
    const Intent intent = run.Leave(left);
    // :method POST and :scheme http from the static table, then literals.
    std::string block = "\x83\x86";
    PutField(block, ":path", "/orders.v1.Orders/Create");
    PutField(block, ":authority", server_.authority());
    PutField(block, "content-type", "application/grpc");
    PutField(block, "te", "trailers");
    PutField(block, "idempotency-key", intent.key);
    PutFrame(one.write, kHeaders, kEndHeaders, one.next, block);
    std::string message;
    PutVarint(message, 0x08, static_cast<std::uint64_t>(intent.account_id));
    PutVarint(message, 0x10, static_cast<std::uint64_t>(intent.amount_cents));
    std::string data(1, '\0');
    Put32(data, static_cast<std::uint32_t>(message.size()));
    data.append(message);
    PutFrame(one.write, kData, kEndStream, one.next, data);
    one.calls.emplace(one.next, PendingCall{send, left, {}});
    one.next += 2;
    in_flight_++;
  }

  void Flush(Run& run, std::size_t at) {
    Connection& one = connections_[at];
    if (!one.open() || one.write.empty()) return;
    const ssize_t wrote = send(one.fd, one.write.data(), one.write.size(), MSG_NOSIGNAL);
    if (wrote < 0 && errno != EAGAIN) return Close(run, at, "EPIPE");
    // The rest is written in the next turn, under load at most a millisecond later.
    if (wrote > 0) one.write.erase(0, static_cast<std::size_t>(wrote));
  }

  // False if the connection was closed.
  bool TakeFrames(Run& run, std::size_t at) {
    Connection& one = connections_[at];
    std::size_t from = 0;
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(one.read[from + i]); };
    while (one.read.size() >= from + 9) {
      const std::size_t size = static_cast<std::size_t>(byte(0)) << 16 |
                               static_cast<std::size_t>(byte(1)) << 8 | byte(2);
      if (one.read.size() < from + 9 + size) break;
      const std::uint8_t type = byte(3);
      const std::uint8_t flags = byte(4);
      const std::uint32_t stream =
          (static_cast<std::uint32_t>(byte(5)) << 24 | static_cast<std::uint32_t>(byte(6)) << 16 |
           static_cast<std::uint32_t>(byte(7)) << 8 | byte(8)) &
          0x7fffffff;
      const std::string payload = one.read.substr(from + 9, size);
      from += 9 + size;
      if (type == kGoAway) {
        Close(run, at, "GOAWAY");
        return false;
      }
      TakeFrame(run, one, type, flags, stream, payload);
    }
    one.read.erase(0, from);
    return true;
  }

  void TakeFrame(Run& run, Connection& one, std::uint8_t type, std::uint8_t flags,
                 std::uint32_t stream, std::string_view payload) {
    if (type == kSettings && !(flags & kAck)) PutFrame(one.write, kSettings, kAck, 0, {});
    if (type == kPing && !(flags & kAck)) PutFrame(one.write, kPing, kAck, 0, payload);
    const auto found = one.calls.find(stream);
    if (type == kData) {
      one.taken += static_cast<std::uint32_t>(payload.size());
      if (one.taken > kWindow / 2) {
        std::string window;
        Put32(window, one.taken);
        PutFrame(one.write, kWindowUpdate, 0, 0, window);
        one.taken = 0;
      }
    }
    if (found == one.calls.end()) return;
    PendingCall& call = found->second;
    if (type == kReset) {
      const Send send = call.send;
      one.calls.erase(found);
      in_flight_--;
      run.Failed(send, "RST_STREAM");
      return;
    }
    if (type != kData && type != kHeaders) return;
    if (flags & kPadded) {
      const auto pad = static_cast<std::uint8_t>(payload[0]);
      payload = payload.substr(1, payload.size() - 1 - pad);
    }
    if (type == kData) {
      call.message.append(payload);
      return;
    }
    if (flags & kPriority) payload.remove_prefix(5);
    if (flags & kEndStream) End(run, one, found, payload);
  }

  void End(Run& run, Connection& one, std::map<std::uint32_t, PendingCall>::iterator found,
           std::string_view trailers) {
    static const std::string kStatus = Huffman("grpc-status");
    static const std::string kReplayed = Huffman("idempotency-replayed");
    static const std::string kTrue = Huffman("true");
    int status = -1;
    int replayed = -1;
    Text name;
    Text value;
    for (HeaderBlock block(trailers); block.Next(name, value);) {
      if (name.Is("grpc-status", kStatus)) {
        for (int code = 0; code <= 16; code++) {
          if (value.Is(std::to_string(code), codes_[code])) status = code;
        }
      }
      if (name.Is("idempotency-replayed", kReplayed)) replayed = value.Is("true", kTrue) ? 1 : 0;
    }
    const PendingCall call = std::move(found->second);
    one.calls.erase(found);
    in_flight_--;
    // The message follows its prefix of five bytes.
    const std::string_view message =
        call.message.size() > 5 ? std::string_view(call.message).substr(5) : std::string_view();
    run.Answered(call.send, call.left, {HttpOf(status, message.empty()), message, replayed});
  }

  static int HttpOf(int status, bool empty) {
    switch (status) {
      case 0:
        return empty ? 500 : 201;
      case 3:
        return 400;
      case 6:
        return 409;
      case 8:
        return 429;
      case 14:
        return 503;
      default:
        return 500;
    }
  }

  Server server_;
  std::int64_t timeout_;
  std::vector<Connection> connections_;
  std::string codes_[17];
  std::size_t turn_ = 0;
  std::size_t in_flight_ = 0;
};

}  // namespace load
