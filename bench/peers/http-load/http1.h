// HTTP/1.1 over persistent connections, one request in flight on each.
#pragma once

#include <strings.h>

#include "sockets.h"

namespace load {

class Http1 : public Transport {
 public:
  Http1(int epoll, std::string host, std::string port, std::string path, std::size_t connections,
        double timeout_s)
      : server_(epoll, std::move(host), std::move(port)),
        timeout_(static_cast<std::int64_t>(timeout_s * 1e9)),
        connections_(connections) {
    head_ = "POST " + path + " HTTP/1.1\r\nHost: " + server_.authority() +
            "\r\nContent-Type: application/json\r\nIdempotency-Key: ";
    for (std::size_t i = 0; i < connections_.size(); i++) {
      if (server_.Open(connections_[i], i)) idle_.push_back(i);
    }
  }

  bool connected() const override { return !idle_.empty(); }
  bool in_flight() const override { return in_flight_ > 0; }

  void Pump(Run& run) override {
    while (!idle_.empty() && run.HasReady()) {
      const std::size_t at = idle_.back();
      idle_.pop_back();
      Connection& one = connections_[at];
      one.send = run.Front();
      one.left = run.Now();
      const Intent intent = run.Leave(one.left);
      char body[96];
      const int body_bytes = std::snprintf(
          body, sizeof body, "{\"account_id\":%lld,\"amount_cents\":%lld}",
          static_cast<long long>(intent.account_id), static_cast<long long>(intent.amount_cents));
      request_.assign(head_);
      request_.append(intent.key);
      request_.append("\r\nContent-Length: ");
      request_.append(std::to_string(body_bytes));
      request_.append("\r\n\r\n");
      request_.append(body, static_cast<std::size_t>(body_bytes));
      one.busy = true;
      in_flight_++;
      // A request is far smaller than the socket buffer, so it is never written partially.
      const ssize_t wrote = send(one.fd, request_.data(), request_.size(), MSG_NOSIGNAL);
      if (wrote != static_cast<ssize_t>(request_.size())) Close(run, at, "EPIPE");
    }
  }

  void OnEvent(Run& run, std::uint64_t what, std::uint32_t) override {
    const auto at = static_cast<std::size_t>(what);
    const char* why = Server::Read(connections_[at], [&] { return TakeReply(run, at); });
    if (why != nullptr) Close(run, at, why);
  }

  void Check(Run& run) override {
    const std::int64_t now = run.Now();
    for (std::size_t at = 0; at < connections_.size(); at++) {
      Connection& one = connections_[at];
      if (one.busy && now - one.left > timeout_) Close(run, at, "timeout");
      if (!one.open() && now >= one.again) {
        if (server_.Open(one, at)) {
          idle_.push_back(at);
        } else {
          one.again = now + kReconnectNs;
        }
      }
    }
  }

 private:
  struct Connection : Socket {
    bool busy = false;
    Send send{};
    std::int64_t left = 0;
  };

  void Close(Run& run, std::size_t at, const char* why) {
    Connection& one = connections_[at];
    if (!one.busy) std::erase(idle_, at);
    Server::Close(one, run.Now());
    if (!one.busy) return;
    one.busy = false;
    in_flight_--;
    run.Failed(one.send, why);
  }

  // Value of a header, or an empty view. `head` ends with the empty line.
  static std::string_view Header(std::string_view head, const char* name) {
    const std::size_t length = std::strlen(name);
    for (std::size_t at = head.find("\r\n"); at + 2 < head.size(); at = head.find("\r\n", at + 2)) {
      const std::string_view line = head.substr(at + 2);
      if (line.size() <= length || line[length] != ':' ||
          strncasecmp(line.data(), name, length) != 0) {
        continue;
      }
      std::string_view value = line.substr(length + 1, line.find("\r\n") - length - 1);
      while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
      return value;
    }
    return {};
  }

  // Joins the chunks in `text`; false while the last chunk is missing.
  static bool Unchunk(std::string_view text, std::string& into) {
    into.clear();
    for (;;) {
      const std::size_t line = text.find("\r\n");
      if (line == std::string_view::npos) return false;
      const std::size_t size = std::strtoul(std::string(text.substr(0, line)).c_str(), nullptr, 16);
      if (text.size() < line + 2 + size + 2) return false;
      if (size == 0) return true;
      into.append(text.substr(line + 2, size));
      text.remove_prefix(line + 2 + size + 2);
    }
  }

  // False if the connection was closed.
  bool TakeReply(Run& run, std::size_t at) {
    Connection& one = connections_[at];
    const std::size_t end = one.read.find("\r\n\r\n");
    if (end == std::string::npos || !one.busy) return true;
    const std::string_view head = std::string_view(one.read).substr(0, end + 4);
    std::string_view body;
    if (Header(head, "transfer-encoding") == "chunked") {
      if (!Unchunk(std::string_view(one.read).substr(end + 4), joined_)) return true;
      body = joined_;
    } else {
      const std::string length(Header(head, "content-length"));
      const std::size_t bytes = std::strtoul(length.c_str(), nullptr, 10);
      if (one.read.size() < end + 4 + bytes) return true;
      body = std::string_view(one.read).substr(end + 4, bytes);
    }
    const std::string_view replayed = Header(head, "idempotency-replayed");
    const Reply reply{std::atoi(one.read.c_str() + 9), body,
                      replayed == "true"    ? 1
                      : replayed == "false" ? 0
                                            : -1};
    const bool closes = Header(head, "connection") == "close";
    one.busy = false;
    in_flight_--;
    run.Answered(one.send, one.left, reply);
    one.read.clear();
    idle_.push_back(at);
    if (closes) Close(run, at, "closed");
    return !closes;
  }

  Server server_;
  std::string head_;
  std::int64_t timeout_;
  std::vector<Connection> connections_;
  std::vector<std::size_t> idle_;
  std::size_t in_flight_ = 0;
  std::string request_;
  std::string joined_;
};

}  // namespace load
