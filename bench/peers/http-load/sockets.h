// Common parts of both transports: non-blocking connections to one server, watched by epoll.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "run.h"

namespace load {

constexpr std::int64_t kReconnectNs = 100'000'000;

// A connected non-blocking socket, or -1.
inline int Connect(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return -1;
  int fd = -1;
  for (addrinfo* at = found; at != nullptr && fd < 0; at = at->ai_next) {
    fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
      close(fd);
      fd = -1;
    }
  }
  freeaddrinfo(found);
  if (fd < 0) return -1;
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

// A connection; each transport adds its requests in flight.
struct Socket {
  int fd = -1;
  std::int64_t again = 0;  // time of the next connect, if closed
  std::string read;        // received and not yet parsed

  bool open() const { return fd >= 0; }
};

class Server {
 public:
  Server(int epoll, std::string host, std::string port)
      : epoll_(epoll), host_(std::move(host)), port_(std::move(port)) {}

  std::string authority() const { return host_ + ":" + port_; }

  // Connects. Its events are reported with the id `at`.
  bool Open(Socket& one, std::size_t at) const {
    one.fd = Connect(host_, port_);
    if (!one.open()) return false;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = at;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, one.fd, &event);
    return true;
  }

  static void Close(Socket& one, std::int64_t now) {
    close(one.fd);
    one.fd = -1;
    one.read.clear();
    one.again = now;
  }

  // Reads all available bytes and calls `take` after each chunk until it returns false. Returns the
  // reason if the connection has ended, else null.
  template <typename Take>
  static const char* Read(Socket& one, Take take) {
    while (one.open()) {
      char chunk[65536];
      const ssize_t got = recv(one.fd, chunk, sizeof chunk, 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (got <= 0) return got == 0 ? "closed" : "ECONNRESET";
      one.read.append(chunk, static_cast<std::size_t>(got));
      if (!take() || static_cast<std::size_t>(got) < sizeof chunk) break;
    }
    return nullptr;
  }

 private:
  int epoll_;
  std::string host_;
  std::string port_;
};

}  // namespace load
