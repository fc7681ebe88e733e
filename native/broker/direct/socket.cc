#include "broker/direct/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace millrace::broker::direct {
namespace {

// Error numbers of librdkafka.
constexpr int kErrTransport = -195;
constexpr int kErrResolve = -193;
constexpr int kErrSsl = -181;

void MakeNonBlocking(int descriptor) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

// Resolves a name; returns the code of getaddrinfo.
int Find(const std::string& host, std::uint16_t port, int flags, std::vector<Address>* out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) return code;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    Address address;
    if (one->ai_addrlen > sizeof address.bytes) continue;
    std::memcpy(&address.bytes, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
    out->push_back(address);
  }
  freeaddrinfo(list);
  return out->empty() ? EAI_NONAME : 0;
}

}  // namespace

Wakeup::Wakeup() {
  if (pipe(ends_) != 0) {
    ends_[0] = ends_[1] = -1;
    return;
  }
  for (const int end : ends_) MakeNonBlocking(end);
}

Wakeup::~Wakeup() {
  for (const int end : ends_) {
    if (end >= 0) close(end);
  }
}

void Wakeup::Wake() {
  const char byte = 0;
  // A full pipe wakes as well.
  [[maybe_unused]] const ssize_t written = write(ends_[1], &byte, 1);
}

void Wakeup::Drain() {
  char bytes[64];
  while (read(ends_[0], bytes, sizeof bytes) > 0) {
  }
}

// Outlives the socket while its thread runs.
struct Socket::Resolution {
  std::mutex mutex;
  bool is_done = false;
  int code = 0;
  std::vector<Address> addresses;
};

Socket::Socket(const Endpoint& endpoint, const TlsContext* tls, bool keeps_alive,
               const Wakeup& wakeup, std::size_t first_address)
    : endpoint_(endpoint), tls_(tls), keeps_alive_(keeps_alive), turns_(first_address) {
  Resolve(wakeup);
}

Socket::~Socket() { Close(); }

void Socket::Close() {
  stream_.reset();
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

Socket::State Socket::Fail(int code, std::string text) {
  Close();
  error_code_ = code;
  error_ = std::move(text);
  state_ = State::kFailed;
  return state_;
}

// An address needs no thread. A name may take seconds, and a stop must not wait for it.
void Socket::Resolve(const Wakeup& wakeup) {
  resolution_ = std::make_shared<Resolution>();
  Resolution& own = *resolution_;
  if (Find(endpoint_.host, endpoint_.port, AI_NUMERICHOST, &own.addresses) == 0) {
    own.is_done = true;
    return;
  }
  const int wake = dup(wakeup.write_end());
  std::thread([shared = resolution_, endpoint = endpoint_, wake] {
    std::vector<Address> found;
    const int code = Find(endpoint.host, endpoint.port, AI_ADDRCONFIG, &found);
    {
      const std::lock_guard lock(shared->mutex);
      shared->addresses = std::move(found);
      shared->code = code;
      shared->is_done = true;
    }
    if (wake < 0) return;
    const char byte = 0;
    [[maybe_unused]] const ssize_t written = write(wake, &byte, 1);
    close(wake);
  }).detach();
}

// Begins to connect to the next address. False when there is none.
bool Socket::Connect() {
  const std::vector<Address>& addresses = resolution_->addresses;
  std::size_t index = 0;
  while (turns_.Next(addresses.size(), &index)) {
    const Address& address = addresses[index];
    Close();
    socket_ = socket(address.bytes.ss_family, SOCK_STREAM, 0);
    if (socket_ < 0) continue;
    MakeNonBlocking(socket_);
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (keeps_alive_) setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) == 0 ||
        errno == EINPROGRESS) {
      state_ = State::kConnecting;
      events_ = POLLOUT;
      return true;
    }
    error_ = std::strerror(errno);
  }
  return false;
}

// Completes a connect that poll reported.
void Socket::Finish() {
  pollfd one{socket_, POLLOUT, 0};
  if (poll(&one, 1, 0) <= 0) return;
  int code = 0;
  socklen_t size = sizeof code;
  getsockopt(socket_, SOL_SOCKET, SO_ERROR, &code, &size);
  if (code != 0) {
    error_ = std::strerror(code);
    if (!Connect()) Fail(kErrTransport, "connect failed: " + std::string(error_));
    return;
  }
  if (tls_ == nullptr) {
    state_ = State::kOpen;
    return;
  }
  std::string why;
  stream_ = TlsStream::Open(*tls_, socket_, endpoint_.host, &why);
  if (stream_ == nullptr) {
    Fail(kErrSsl, "TLS failed: " + why);
    return;
  }
  state_ = State::kTls;
}

Socket::State Socket::Open() {
  if (state_ == State::kResolving) {
    const std::lock_guard lock(resolution_->mutex);
    if (!resolution_->is_done) return state_;
    if (resolution_->code != 0)
      return Fail(kErrResolve,
                  std::string("the name cannot be resolved: ") + gai_strerror(resolution_->code));
    if (!Connect()) return Fail(kErrTransport, "connect failed: " + std::string(error_));
  }
  if (state_ == State::kConnecting) Finish();
  if (state_ != State::kTls) return state_;
  std::string why;
  switch (stream_->Handshake(&why)) {
    case Io::kDone:
      state_ = State::kOpen;
      break;
    case Io::kWantsRead:
      events_ = POLLIN;
      break;
    case Io::kWantsWrite:
      events_ = POLLOUT;
      break;
    case Io::kClosed:
      return Fail(kErrSsl, "the broker closed the connection during the TLS handshake");
    case Io::kFailed:
      return Fail(kErrSsl, "TLS handshake failed: " + why);
  }
  return state_;
}

Io Socket::Read(void* into, std::size_t size, std::size_t* done) {
  if (stream_ != nullptr) return stream_->Read(into, size, done, &error_);
  const ssize_t got = recv(socket_, into, size, 0);
  if (got > 0) {
    *done = static_cast<std::size_t>(got);
    return Io::kDone;
  }
  if (got == 0) return Io::kClosed;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Io::kWantsRead;
  error_ = std::strerror(errno);
  return Io::kFailed;
}

Io Socket::Write(const void* from, std::size_t size, std::size_t* done) {
  if (stream_ != nullptr) return stream_->Write(from, size, done, &error_);
#if defined(MSG_NOSIGNAL)
  constexpr int kFlags = MSG_NOSIGNAL;
#else
  constexpr int kFlags = 0;
#endif
  const ssize_t sent = send(socket_, from, size, kFlags);
  if (sent >= 0) {
    *done = static_cast<std::size_t>(sent);
    return Io::kDone;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Io::kWantsWrite;
  error_ = std::strerror(errno);
  return Io::kFailed;
}

}  // namespace millrace::broker::direct
