// Fetches the records of partitions from their leaders: metadata, offsets, fetch sessions, leader
// changes, throttling and truncation. Responses wait, unread, as parts of partitions.
//
// Threads: everything runs on the one reader thread, except Wake. Nothing blocks but Pump, in its
// poll.
//
// Partitions with a backlog are fetched in step, by the timestamps of their records: one that is
// more than some seconds ahead of another waits. Otherwise the broker sends as much of each, and
// the busiest partition falls behind the others by more and more event time.
//
// Invariant: the records of a partition are delivered once and in order. A response counts only if
// it was requested from the offset that comes next, in the partition's present generation; an
// assignment, a seek, a pause and a fault begin a new generation.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "broker/client.h"
#include "broker/direct/connection.h"
#include "broker/direct/settings.h"
#include "broker/wire/messages.h"

struct pollfd;

namespace millrace::broker::direct {

// Symbolic positions of the port.
inline constexpr std::int64_t kOffsetBeginning = -2;
inline constexpr std::int64_t kOffsetEnd = -1;
inline constexpr std::int64_t kOffsetStored = -1000;
// No position: the partition is not fetched until it gets another.
inline constexpr std::int64_t kOffsetNone = -1001;

// Longest wait of a partition that is ahead of others, in ms: then one response of it is fetched
// whatever the others have, so a wrong timestamp delays records but withholds none.
inline constexpr std::int64_t kAheadWaitMs = 5000;

struct Partition {
  std::uint32_t topic = 0;
  std::int32_t number = 0;
  bool assigned = false;
  bool paused = false;
  // Next offset to deliver; kOffsetStored before it is known.
  std::int64_t position = kOffsetStored;
  // Next offset to request; negative: to be asked of the leader.
  std::int64_t fetch_offset = kOffsetNone;
  // Leader epoch of the last batch that arrived, or -1.
  std::int32_t fetched_epoch = -1;
  std::int32_t leader = -1;
  std::int32_t leader_epoch = -1;
  std::uint32_t generation = 0;
  // Offset at which the end was reported, or -1.
  std::int64_t end = -1;
  // Nothing is requested before this time.
  std::int64_t retry_ms = 0;
  // Consecutive faults at the position.
  std::uint32_t faults = 0;
  // True while a batch that cannot be read waits for its reader.
  bool blocked = false;
  bool listing = false;
  // Error that was reported last.
  std::int16_t error = 0;
  // Greatest timestamp of what was fetched, in ms, now and before the last response with records;
  // negative: none.
  std::int64_t newest_ms = -1;
  std::int64_t newest_before_ms = -1;
  // True when the last response reached the end of the partition.
  bool at_end = false;
  // Since when it waits for partitions behind it, or -1.
  std::int64_t ahead_since_ms = -1;
};

class Fetcher;

// Memory of one response; it returns to the pool with its last part.
class Response {
 public:
  Response(Fetcher* fetcher, std::unique_ptr<Frame> frame, std::shared_ptr<std::uint32_t> ahead);
  ~Response();
  Response(const Response&) = delete;
  Response& operator=(const Response&) = delete;
  std::int64_t received_us() const { return frame_->received_us; }

 private:
  Fetcher* fetcher_;
  std::unique_ptr<Frame> frame_;
  std::shared_ptr<std::uint32_t> ahead_;
};

// Records of one partition in one response.
struct Part {
  std::uint32_t partition;
  std::uint32_t generation;
  std::shared_ptr<Response> response;
  wire::Bytes records;
  std::int64_t from_offset;
  std::vector<wire::Aborted> aborted;
  // True when the partition had no more records than these.
  bool reaches_end;
};

class Fetcher {
 public:
  Fetcher(const Settings& settings, const TlsContext* tls);
  ~Fetcher();

  bool is_open() const { return wakeup_.is_open(); }
  // Requests and receives; waits at most `wait_ms` (negative: without limit) where nothing is to be
  // done, or until Wake.
  void Pump(int wait_ms);
  // From any thread.
  void Wake() { wakeup_.Wake(); }
  // Waits until a broker has answered. The error is final where a retry would get the same.
  Event Connect(int timeout_ms, Waiter* waiter);

  std::vector<Partition>& partitions() { return partitions_; }
  const std::vector<std::string>& topics() const { return topics_; }
  // Index of a partition, which is added.
  std::uint32_t Add(const std::string& topic, std::int32_t number);
  // Null for a partition that was never added.
  Partition* Find(std::string_view topic, std::int32_t number);
  // Begins a new generation at this offset, which may be symbolic. Parts that wait are void.
  void Restart(Partition* partition, std::int64_t offset);
  // Handles a position that the broker no longer has, by the policy of the settings.
  void ResetOffset(Partition* partition, const std::string& why);

  std::deque<Part>& parts() { return parts_; }
  void Note(Event event);
  std::vector<Event> Drain();
  Event EventAt(const Partition& partition, int code, std::string message) const;

 private:
  friend class Response;
  enum Request : Connection::Kind { kMetadata, kListOffsets, kFetch };
  // State of a partition in the fetch session of a broker.
  struct Sent {
    std::int64_t offset;
    std::int32_t leader_epoch;
    std::int32_t fetched_epoch;
    std::uint32_t generation;
  };
  struct Node {
    std::int32_t id = -1;
    Endpoint endpoint;
    std::unique_ptr<Connection> connection;
    std::int64_t retry_ms = 0;
    int backoff_ms = 0;
    std::int64_t throttled_ms = 0;
    wire::FetchSession session;
    std::unordered_map<std::uint32_t, Sent> sent;
    bool is_fetching = false;
    // Partitions of a ListOffsets request, with their generations.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> listed;
    // Responses that wait for their reader.
    std::shared_ptr<std::uint32_t> ahead = std::make_shared<std::uint32_t>(0);
    int reported_code = 0;
    std::string reported;
    std::int64_t reported_ms = 0;
    // Responses in a row that were not one.
    std::uint32_t damaged = 0;
    // Responses above the limit, whatever lies between them, and the time of the last one.
    std::uint32_t refused = 0;
    std::int64_t refused_ms = 0;
    // True when the connection was ready.
    bool was_ready = false;
    // Number of the address of the host that is tried first; it grows when none was ready.
    std::size_t first_address = 0;
    bool is_ready() const {
      return connection != nullptr && connection->state() == Connection::State::kReady;
    }
  };

  bool Step(std::int64_t now_ms);
  int TimeToWait(std::int64_t now_ms, int wait_ms);
  bool DriveNode(Node* node, std::int64_t now_ms);
  bool IsNeeded(const Node& node) const;
  void OpenNode(Node* node, std::int64_t now_ms);
  void OnFailure(Node* node, std::int64_t now_ms);
  static Event DamageOf(Node* node, std::string message);
  static Event RefusalOf(Node* node, std::string message, std::int64_t now_ms);
  static Event DamageEvent(std::uint32_t times, std::string message);
  void OnResponse(Node* node, Request request, std::unique_ptr<Frame> frame, std::int64_t now_ms);
  void SendRequests(Node* node, std::int64_t now_ms);
  Node* NodeOf(std::int32_t id);
  Node* AnyReady();

  bool WantsMetadata(std::int64_t now_ms) const;
  void SendMetadata(std::int64_t now_ms);
  bool OnMetadata(const Frame& frame, std::int64_t now_ms);
  void OnBrokers(const std::vector<wire::BrokerRow>& rows);
  void OnLeader(const wire::LeaderRow& row);
  void RefreshMetadata(std::int64_t now_ms);
  void ReportError(Partition* partition, std::int16_t error);

  void SendListOffsets(Node* node, std::int64_t now_ms);
  bool OnListOffsets(Node* node, const Frame& frame, std::int64_t now_ms);

  bool IsWanted(const Partition& partition, std::int32_t node, std::int64_t now_ms) const;
  std::int64_t OldestFront(std::int64_t now_ms);
  static bool WaitsForOthers(Partition* partition, std::int64_t oldest_ms, std::int64_t now_ms);
  bool MayFetch(const Node& node) const;
  void SendFetch(Node* node, std::int64_t now_ms);
  bool OnFetched(Node* node, std::unique_ptr<Frame> frame, std::int64_t now_ms);
  void OnFetchedRow(Node* node, wire::FetchedRow* row, const std::shared_ptr<Response>& response,
                    std::int64_t now_ms);
  void OnFetchedRecords(std::uint32_t index, wire::FetchedRow* row,
                        const std::shared_ptr<Response>& response);
  void OnFetchError(Partition* partition, const wire::FetchedRow& row, std::int64_t now_ms);
  void OnTruncated(Partition* partition, const wire::FetchedRow& row, std::int64_t now_ms);
  static void ForgetSession(Node* node);
  static void RestartSession(Node* node);
  void Throttle(Node* node, std::int32_t throttle_ms, std::int64_t now_ms);

  const Settings settings_;
  const TlsContext* tls_;
  Wakeup wakeup_;
  FramePool pool_;
  std::size_t queued_bytes_ = 0;
  std::vector<std::string> topics_;
  std::vector<Partition> partitions_;
  // Index of a partition by topic and number.
  std::vector<std::unordered_map<std::int32_t, std::uint32_t>> numbers_;
  std::vector<std::unique_ptr<Node>> nodes_;
  // Asks for metadata until a leader is connected.
  Node bootstrap_;
  std::size_t next_bootstrap_ = 0;
  bool wants_connection_ = false;
  bool has_metadata_request_ = false;
  // True while metadata is wanted and no broker is connected.
  bool wants_bootstrap_ = false;
  bool refresh_ = false;
  std::int64_t next_metadata_ms_ = 0;
  std::int64_t metadata_ms_ = 0;
  int metadata_backoff_ms_ = 0;
  // True once no broker could be reached and that was reported.
  bool all_down_ = false;
  Event last_failure_;
  std::deque<Part> parts_;
  std::deque<Event> events_;
  std::vector<pollfd> polled_;
};

}  // namespace millrace::broker::direct
