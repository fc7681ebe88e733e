#include "broker/direct/fetcher.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace millrace::broker::direct {
namespace {

// Error numbers of librdkafka.
constexpr int kErrSsl = -181;
constexpr int kErrAllBrokersDown = -187;
constexpr int kErrTransport = -195;
constexpr int kErrBadMessage = -199;
constexpr int kErrAuthentication = -169;
constexpr int kErrUnsupported = -165;

constexpr std::size_t kEventsMax = 256;
// The same failure of a broker is reported again after this time.
constexpr std::int64_t kReportAgainMs = 30'000;
// Responses of a broker in a row that are not one, before they are reported as damage.
constexpr std::uint32_t kDamagedTries = 3;
// Time within which a batch above the limit is sent again.
constexpr std::int64_t kRefusedAgainMs = 60'000;
constexpr int kConnectSliceMs = 100;

}  // namespace

Response::Response(Fetcher* fetcher, std::unique_ptr<Frame> frame,
                   std::shared_ptr<std::uint32_t> ahead)
    : fetcher_(fetcher), frame_(std::move(frame)), ahead_(std::move(ahead)) {
  ++*ahead_;
  fetcher_->queued_bytes_ += frame_->capacity;
}

Response::~Response() {
  --*ahead_;
  fetcher_->queued_bytes_ -= frame_->capacity;
  fetcher_->pool_.Return(std::move(frame_));
}

Fetcher::Fetcher(const Settings& settings, const TlsContext* tls)
    : settings_(settings), tls_(tls) {}

Fetcher::~Fetcher() { parts_.clear(); }

void Fetcher::Note(Event event) {
  if (events_.size() >= kEventsMax) events_.pop_front();
  events_.push_back(std::move(event));
}

std::vector<Event> Fetcher::Drain() {
  std::vector<Event> out(std::make_move_iterator(events_.begin()),
                         std::make_move_iterator(events_.end()));
  events_.clear();
  return out;
}

Event Fetcher::EventAt(const Partition& partition, int code, std::string message) const {
  Event event = EventOf(code);
  if (!message.empty()) event.message = std::move(message);
  event.topic = topics_[partition.topic];
  event.partition = partition.number;
  return event;
}

std::uint32_t Fetcher::Add(const std::string& topic, std::int32_t number) {
  const auto found = std::find(topics_.begin(), topics_.end(), topic);
  const auto index = static_cast<std::uint32_t>(found - topics_.begin());
  if (found == topics_.end()) {
    topics_.push_back(topic);
    numbers_.emplace_back();
  }
  const auto [at, is_new] =
      numbers_[index].try_emplace(number, static_cast<std::uint32_t>(partitions_.size()));
  if (is_new) {
    Partition& added = partitions_.emplace_back();
    added.topic = index;
    added.number = number;
  }
  return at->second;
}

Partition* Fetcher::Find(std::string_view topic, std::int32_t number) {
  for (std::size_t i = 0; i < topics_.size(); i++) {
    if (topics_[i] != topic) continue;
    const auto at = numbers_[i].find(number);
    return at == numbers_[i].end() ? nullptr : &partitions_[at->second];
  }
  return nullptr;
}

void Fetcher::Restart(Partition* partition, std::int64_t offset) {
  partition->generation++;
  partition->position = offset >= 0 ? offset : kOffsetStored;
  partition->fetch_offset = offset;
  partition->fetched_epoch = -1;
  partition->end = -1;
  partition->retry_ms = 0;
  partition->faults = 0;
  partition->blocked = false;
  partition->listing = false;
  partition->newest_ms = -1;
  partition->newest_before_ms = -1;
  partition->at_end = false;
  partition->ahead_since_ms = -1;
  if (offset < 0 && offset != kOffsetBeginning && offset != kOffsetEnd)
    ResetOffset(partition, "no offset is stored");
}

void Fetcher::ResetOffset(Partition* partition, const std::string& why) {
  if (settings_.reset == Reset::kError) {
    partition->generation++;
    partition->fetch_offset = kOffsetNone;
    Note(EventAt(*partition, -140,
                 why + ", and auto.offset.reset is error (local: no automatic offset reset)"));
    return;
  }
  Restart(partition, settings_.reset == Reset::kEarliest ? kOffsetBeginning : kOffsetEnd);
}

Fetcher::Node* Fetcher::NodeOf(std::int32_t id) {
  for (const auto& node : nodes_) {
    if (node->id == id) return node.get();
  }
  return nullptr;
}

Fetcher::Node* Fetcher::AnyReady() {
  for (const auto& node : nodes_) {
    if (node->is_ready()) return node.get();
  }
  return bootstrap_.is_ready() ? &bootstrap_ : nullptr;
}

bool Fetcher::IsNeeded(const Node& node) const {
  if (&node == &bootstrap_) return wants_connection_ || wants_bootstrap_;
  for (const Partition& one : partitions_) {
    if (one.assigned && !one.paused && one.leader == node.id) return true;
  }
  return false;
}

void Fetcher::OpenNode(Node* node, std::int64_t now_ms) {
  if (node == &bootstrap_)
    node->endpoint = settings_.bootstrap[next_bootstrap_++ % settings_.bootstrap.size()];
  node->was_ready = false;
  node->connection = std::make_unique<Connection>(settings_, tls_, &pool_, node->endpoint, wakeup_,
                                                  now_ms, node->first_address);
}

void Fetcher::ForgetSession(Node* node) {
  node->session = {};
  node->sent.clear();
}

// Begins the session again. Its id is kept: the first request of the next session names it, and so
// frees its place at the broker.
void Fetcher::RestartSession(Node* node) {
  node->session.epoch = 0;
  node->sent.clear();
}

// Returns the event of a response that is not one. Damage on the way is over with the connection,
// so only what repeats is reported as damage.
Event Fetcher::DamageOf(Node* node, std::string message) {
  return DamageEvent(++node->damaged, std::move(message));
}

// Returns the event of a response that is refused because of its size. One that holds a batch above
// the limit is sent each time, with sound responses between.
Event Fetcher::RefusalOf(Node* node, std::string message, std::int64_t now_ms) {
  if (now_ms - node->refused_ms > kRefusedAgainMs) node->refused = 0;
  node->refused_ms = now_ms;
  return DamageEvent(++node->refused, std::move(message));
}

Event Fetcher::DamageEvent(std::uint32_t times, std::string message) {
  Event event = EventOf(times < kDamagedTries ? kErrTransport : kErrBadMessage);
  event.message = std::move(message);
  return event;
}

// Ends a connection and plans the next.
void Fetcher::OnFailure(Node* node, std::int64_t now_ms) {
  const Connection& failed = *node->connection;
  const bool is_quiet = failed.closed_idle();
  Event event = EventOf(failed.error_code());
  event.message = failed.error();
  if (failed.error_code() == kErrBadMessage) {
    event = failed.refused_size() ? RefusalOf(node, std::move(event.message), now_ms)
                                  : DamageOf(node, std::move(event.message));
  }
  if (!node->was_ready) node->first_address = failed.next_address();
  node->connection.reset();
  node->is_fetching = false;
  for (const auto& [index, generation] : node->listed) partitions_[index].listing = false;
  node->listed.clear();
  ForgetSession(node);
  has_metadata_request_ = false;
  node->backoff_ms = std::clamp(2 * node->backoff_ms, settings_.reconnect_ms,
                                std::max(settings_.reconnect_ms, settings_.reconnect_max_ms));
  node->retry_ms = now_ms + node->backoff_ms;
  RefreshMetadata(now_ms);
  last_failure_ = event;
  if (is_quiet) return;
  if (node->reported_code != event.code || node->reported != event.message ||
      now_ms - node->reported_ms > kReportAgainMs) {
    node->reported_code = event.code;
    node->reported = event.message;
    node->reported_ms = now_ms;
    Note(std::move(event));
  }
  if (!all_down_ && AnyReady() == nullptr) {
    all_down_ = true;
    Note(EventOf(kErrAllBrokersDown));
  }
}

// True when something arrived.
bool Fetcher::DriveNode(Node* node, std::int64_t now_ms) {
  if (node->connection == nullptr) {
    if (!IsNeeded(*node) || now_ms < node->retry_ms) return false;
    OpenNode(node, now_ms);
  }
  bool has_arrived = false;
  const Connection::State state = node->connection->Drive(now_ms);
  Connection::Kind kind = 0;
  while (std::unique_ptr<Frame> frame = node->connection->Receive(&kind)) {
    OnResponse(node, static_cast<Request>(kind), std::move(frame), now_ms);
    has_arrived = true;
    if (node->connection == nullptr) return true;
  }
  if (state == Connection::State::kFailed) {
    OnFailure(node, now_ms);
    return true;
  }
  if (state != Connection::State::kReady) return has_arrived;
  node->backoff_ms = 0;
  node->was_ready = true;
  all_down_ = false;
  const bool is_spare = node == &bootstrap_ && !IsNeeded(*node) && !nodes_.empty();
  const bool is_expired = node->connection->expires_ms() <= now_ms;
  if (!node->connection->HasRequests() && (is_spare || is_expired)) {
    node->connection.reset();
    ForgetSession(node);
  }
  return has_arrived;
}

void Fetcher::OnResponse(Node* node, Request request, std::unique_ptr<Frame> frame,
                         std::int64_t now_ms) {
  bool is_sound = false;
  switch (request) {
    case kMetadata:
      has_metadata_request_ = false;
      is_sound = OnMetadata(*frame, now_ms);
      break;
    case kListOffsets:
      is_sound = OnListOffsets(node, *frame, now_ms);
      break;
    case kFetch:
      node->is_fetching = false;
      is_sound = OnFetched(node, std::move(frame), now_ms);
      break;
  }
  if (frame != nullptr) pool_.Return(std::move(frame));
  if (is_sound) {
    node->damaged = 0;
    return;
  }
  Note(DamageOf(node, node->endpoint.host + ":" + std::to_string(node->endpoint.port) +
                          ": the broker sent a response that is not one"));
  has_metadata_request_ = false;
  node->is_fetching = false;
  node->connection.reset();
  for (const auto& [index, generation] : node->listed) partitions_[index].listing = false;
  node->listed.clear();
  ForgetSession(node);
  node->retry_ms = now_ms + settings_.reconnect_ms;
}

void Fetcher::SendRequests(Node* node, std::int64_t now_ms) {
  if (!node->is_ready() || now_ms < node->throttled_ms) return;
  if (node->connection->expires_ms() <= now_ms) return;
  SendListOffsets(node, now_ms);
  SendFetch(node, now_ms);
}

// Does what can be done without waiting. True when something arrived.
bool Fetcher::Step(std::int64_t now_ms) {
  bool has_arrived = DriveNode(&bootstrap_, now_ms);
  // Metadata may add nodes meanwhile.
  for (std::size_t i = 0; i < nodes_.size(); i++)
    has_arrived = DriveNode(nodes_[i].get(), now_ms) || has_arrived;
  SendMetadata(now_ms);
  for (std::size_t i = 0; i < nodes_.size(); i++) SendRequests(nodes_[i].get(), now_ms);
  return has_arrived;
}

// Time until something is to be done, in ms; negative: without limit.
int Fetcher::TimeToWait(std::int64_t now_ms, int wait_ms) {
  std::int64_t next = wait_ms < 0 ? INT64_MAX : now_ms + wait_ms;
  const auto at = [&](std::int64_t time_ms) {
    if (time_ms > now_ms) next = std::min(next, time_ms);
  };
  const auto of_node = [&](const Node& node) {
    if (node.connection != nullptr) {
      at(node.connection->deadline_ms());
      at(node.connection->expires_ms());
      at(node.throttled_ms);
    } else if (IsNeeded(node)) {
      at(std::max(node.retry_ms, now_ms + 1));
    }
  };
  of_node(bootstrap_);
  for (const auto& node : nodes_) of_node(*node);
  bool has_assigned = false;
  for (const Partition& one : partitions_) {
    if (!one.assigned || one.paused) continue;
    has_assigned = true;
    at(one.retry_ms);
    if (one.ahead_since_ms >= 0) at(one.ahead_since_ms + kAheadWaitMs);
  }
  if (has_assigned) at(next_metadata_ms_);
  if (has_assigned && settings_.metadata_ms > 0) at(metadata_ms_ + settings_.metadata_ms);
  if (next == INT64_MAX) return -1;
  return static_cast<int>(std::clamp<std::int64_t>(next - now_ms, 0, INT32_MAX));
}

void Fetcher::Pump(int wait_ms) {
  const std::int64_t now_ms = NowMs();
  if (Step(now_ms) || wait_ms == 0) return;
  polled_.assign(1, {wakeup_.read_end(), POLLIN, 0});
  const auto add = [&](const Node& node) {
    pollfd one{};
    if (node.connection != nullptr && node.connection->Poll(&one)) polled_.push_back(one);
  };
  add(bootstrap_);
  for (const auto& node : nodes_) add(*node);
  const int ready =
      poll(polled_.data(), static_cast<nfds_t>(polled_.size()), TimeToWait(now_ms, wait_ms));
  if (ready > 0 && polled_[0].revents != 0) wakeup_.Drain();
  Step(NowMs());
}

Event Fetcher::Connect(int timeout_ms, Waiter* waiter) {
  const std::int64_t deadline = NowMs() + timeout_ms;
  wants_connection_ = true;
  last_failure_ = {};
  Event failed = EventOf(-185);
  while (AnyReady() == nullptr) {
    const int code = last_failure_.code;
    if (code != 0) failed = std::exchange(last_failure_, {});
    const bool is_final = code == kErrSsl || code == kErrAuthentication || code == kErrUnsupported;
    if (is_final || NowMs() >= deadline || waiter->Stopping()) break;
    Pump(static_cast<int>(std::clamp<std::int64_t>(deadline - NowMs(), 1, kConnectSliceMs)));
  }
  wants_connection_ = false;
  // The caller reports the failures of this call.
  events_.clear();
  return AnyReady() == nullptr ? failed : Event{};
}

}  // namespace millrace::broker::direct
