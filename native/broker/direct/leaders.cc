// Fetcher, part 2: which broker leads a partition, and where its log begins and ends.
#include <algorithm>

#include "broker/direct/fetcher.h"

namespace millrace::broker::direct {
namespace {

// Pauses between two requests for metadata that was not enough, doubled up to the greatest.
constexpr int kMetadataBackoffMs = 50;
constexpr int kMetadataBackoffMsMax = 1000;
constexpr std::int64_t kRetryMs = 100;
// Errors that a change of leader explains; they are not reported.
constexpr std::int16_t kElections[] = {wire::kLeaderNotAvailable, wire::kNotLeader,
                                       wire::kReplicaNotAvailable};

}  // namespace

bool Fetcher::WantsMetadata(std::int64_t now_ms) const {
  if (has_metadata_request_ || now_ms < next_metadata_ms_) return false;
  bool has_assigned = false;
  for (const Partition& one : partitions_) {
    if (!one.assigned) continue;
    has_assigned = true;
    if (one.leader < 0) return true;
  }
  const bool is_old = settings_.metadata_ms > 0 && now_ms - metadata_ms_ >= settings_.metadata_ms;
  return has_assigned && (refresh_ || is_old);
}

void Fetcher::RefreshMetadata(std::int64_t now_ms) {
  refresh_ = true;
  next_metadata_ms_ = std::max(next_metadata_ms_, now_ms);
}

void Fetcher::SendMetadata(std::int64_t now_ms) {
  if (!WantsMetadata(now_ms)) return;
  Node* node = AnyReady();
  wants_bootstrap_ = node == nullptr;
  if (node == nullptr) return;
  std::vector<std::string> topics;
  for (const Partition& one : partitions_) {
    const std::string& topic = topics_[one.topic];
    if (one.assigned && std::find(topics.begin(), topics.end(), topic) == topics.end())
      topics.push_back(topic);
  }
  Connection& connection = *node->connection;
  connection.Send(wire::MetadataRequest(connection.NextCorrelation(), settings_.client_id, topics),
                  kMetadata, now_ms);
  has_metadata_request_ = true;
  refresh_ = false;
}

bool Fetcher::OnMetadata(const Frame& frame, std::int64_t now_ms) {
  wire::Metadata metadata;
  if (!wire::ReadMetadata(frame.Body(), &metadata)) return false;
  OnBrokers(metadata.brokers);
  for (const wire::LeaderRow& row : metadata.leaders) OnLeader(row);
  for (Partition& one : partitions_) {
    const auto is_of = [&](const wire::LeaderRow& row) {
      return row.topic == topics_[one.topic] && (row.partition < 0 || row.partition == one.number);
    };
    const auto& rows = metadata.leaders;
    if (one.assigned && std::none_of(rows.begin(), rows.end(), is_of))
      ReportError(&one, wire::kUnknownTopicOrPartition);
  }
  metadata_ms_ = now_ms;
  bool is_enough = true;
  for (const Partition& one : partitions_)
    is_enough = is_enough && (!one.assigned || one.leader >= 0);
  metadata_backoff_ms_ =
      is_enough ? 0
                : std::clamp(2 * metadata_backoff_ms_, kMetadataBackoffMs, kMetadataBackoffMsMax);
  next_metadata_ms_ = now_ms + std::max(kMetadataBackoffMs, metadata_backoff_ms_);
  return true;
}

void Fetcher::OnBrokers(const std::vector<wire::BrokerRow>& rows) {
  for (const wire::BrokerRow& row : rows) {
    if (row.id < 0 || row.port < 1 || row.port > 65535) continue;
    Node* node = NodeOf(row.id);
    if (node == nullptr) {
      node = nodes_.emplace_back(std::make_unique<Node>()).get();
      node->id = row.id;
    }
    const auto port = static_cast<std::uint16_t>(row.port);
    if (node->endpoint.host == row.host && node->endpoint.port == port) continue;
    // The broker moved: an open connection ends by itself.
    node->endpoint = {std::string(row.host), port};
    node->retry_ms = 0;
  }
}

// Reports an error of a partition once, until it has another or none.
void Fetcher::ReportError(Partition* partition, std::int16_t error) {
  if (partition->error == error) return;
  partition->error = error;
  const bool is_election =
      std::find(std::begin(kElections), std::end(kElections), error) != std::end(kElections);
  if (error != wire::kNoError && !is_election) Note(EventAt(*partition, error, {}));
}

void Fetcher::OnLeader(const wire::LeaderRow& row) {
  for (Partition& one : partitions_) {
    if (!one.assigned || topics_[one.topic] != row.topic) continue;
    if (row.partition >= 0 && row.partition != one.number) continue;
    ReportError(&one, row.error);
    // An older answer than the last is of a broker that has not heard of the new leader.
    if (row.leader < 0 || (row.leader_epoch >= 0 && row.leader_epoch < one.leader_epoch)) continue;
    one.leader = row.leader;
    one.leader_epoch = row.leader_epoch;
  }
}

void Fetcher::SendListOffsets(Node* node, std::int64_t now_ms) {
  if (!node->listed.empty()) return;
  std::vector<wire::ListRow> rows;
  for (std::uint32_t i = 0; i < partitions_.size(); i++) {
    Partition& one = partitions_[i];
    const bool is_symbolic = one.fetch_offset == kOffsetBeginning || one.fetch_offset == kOffsetEnd;
    if (!one.assigned || one.paused || one.leader != node->id || !is_symbolic ||
        now_ms < one.retry_ms) {
      continue;
    }
    rows.push_back({topics_[one.topic], one.number, one.leader_epoch,
                    one.fetch_offset == kOffsetBeginning ? wire::kEarliest : wire::kLatest});
    node->listed.emplace_back(i, one.generation);
    one.listing = true;
  }
  if (rows.empty()) return;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.topic < b.topic; });
  Connection& connection = *node->connection;
  connection.Send(wire::ListOffsetsRequest(connection.NextCorrelation(), settings_.client_id,
                                           settings_.committed_only, rows),
                  kListOffsets, now_ms);
}

bool Fetcher::OnListOffsets(Node* node, const Frame& frame, std::int64_t now_ms) {
  std::int32_t throttle_ms = 0;
  std::vector<wire::ListedRow> rows;
  const bool is_sound = wire::ReadListOffsets(frame.Body(), &throttle_ms, &rows);
  if (!is_sound) return false;
  Throttle(node, throttle_ms, now_ms);
  for (const auto& [index, generation] : node->listed) {
    Partition& one = partitions_[index];
    one.listing = false;
    if (one.generation != generation || !one.assigned) continue;
    // A partition without a row is asked again.
    one.retry_ms = now_ms + kRetryMs;
    for (const wire::ListedRow& row : rows) {
      if (row.partition != one.number || row.topic != topics_[one.topic]) continue;
      ReportError(&one, row.error);
      if (row.error == wire::kNoError && row.offset >= 0) {
        one.fetch_offset = row.offset;
        one.position = row.offset;
        one.retry_ms = 0;
      } else {
        one.leader = -1;
      }
    }
  }
  node->listed.clear();
  return true;
}

}  // namespace millrace::broker::direct
