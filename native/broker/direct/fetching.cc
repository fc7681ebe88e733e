// Fetcher, part 3: fetch sessions and their responses.
#include <algorithm>
#include <utility>

#include "broker/direct/fetcher.h"

namespace millrace::broker::direct {
namespace {

// Error numbers of librdkafka.
constexpr int kErrLogTruncation = -139;

// Responses of a broker that wait for their reader, above which it gets no further request. One is
// read while the next arrives.
constexpr std::uint32_t kAheadMax = 2;
constexpr std::int64_t kRetryMs = 100;
// Time by which a partition may be ahead of others before its last response, in ms of the records'
// timestamps.
constexpr std::int64_t kAheadMsMax = 5000;
// A broker's wish to be left alone counts up to this.
constexpr std::int32_t kThrottleMsMax = 60'000;

// A session's numbers begin with 1; 0 asks for a new session.
std::int32_t NextEpoch(std::int32_t epoch) { return epoch == INT32_MAX ? 1 : epoch + 1; }

bool IsNewLeader(std::int16_t error) {
  switch (error) {
    case wire::kUnknownTopicOrPartition:
    case wire::kLeaderNotAvailable:
    case wire::kNotLeader:
    case wire::kReplicaNotAvailable:
    case wire::kStorageError:
    case wire::kFencedLeaderEpoch:
    case wire::kUnknownLeaderEpoch:
    case wire::kUnknownTopicId:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Fetcher::Throttle(Node* node, std::int32_t throttle_ms, std::int64_t now_ms) {
  if (throttle_ms > 0) node->throttled_ms = now_ms + std::min(throttle_ms, kThrottleMsMax);
}

bool Fetcher::IsWanted(const Partition& partition, std::int32_t node, std::int64_t now_ms) const {
  return partition.assigned && !partition.paused && !partition.blocked &&
         partition.leader == node && partition.fetch_offset >= 0 && partition.retry_ms <= now_ms;
}

// Least time that a partition with more records was fetched up to, in ms; INT64_MAX: none is known.
// A partition that cannot be fetched now holds no other back.
std::int64_t Fetcher::OldestFront(std::int64_t now_ms) {
  std::int64_t oldest = INT64_MAX;
  for (const Partition& one : partitions_) {
    const bool has_more = one.newest_ms >= 0 && !one.at_end && one.error == wire::kNoError;
    if (!has_more || !IsWanted(one, one.leader, now_ms)) continue;
    const Node* leader = NodeOf(one.leader);
    if (leader != nullptr && leader->is_ready()) oldest = std::min(oldest, one.newest_ms);
  }
  return oldest;
}

bool Fetcher::WaitsForOthers(Partition* partition, std::int64_t oldest_ms, std::int64_t now_ms) {
  const std::int64_t front = partition->newest_before_ms;
  if (front <= oldest_ms || front - oldest_ms <= kAheadMsMax) {
    partition->ahead_since_ms = -1;
    return false;
  }
  if (partition->ahead_since_ms < 0) partition->ahead_since_ms = now_ms;
  if (now_ms - partition->ahead_since_ms < kAheadWaitMs) return true;
  partition->ahead_since_ms = now_ms;
  return false;
}

bool Fetcher::MayFetch(const Node& node) const {
  return !node.is_fetching && *node.ahead < kAheadMax && queued_bytes_ < settings_.queue_bytes_max;
}

void Fetcher::SendFetch(Node* node, std::int64_t now_ms) {
  if (!MayFetch(*node)) return;
  // A session answers only what changed at the broker. After a restart of a partition at the same
  // offset its end must be heard again, so another session begins, which ends this one.
  const auto is_old = [&](const auto& one) {
    return partitions_[one.first].generation != one.second.generation;
  };
  if (std::any_of(node->sent.begin(), node->sent.end(), is_old)) RestartSession(node);
  std::vector<wire::FetchRow> rows;
  std::vector<wire::TopicPlace> forgotten;
  bool has_wanted = false;
  const std::int64_t oldest = OldestFront(now_ms);
  for (std::uint32_t i = 0; i < partitions_.size(); i++) {
    Partition& one = partitions_[i];
    const auto known = node->sent.find(i);
    if (!IsWanted(one, node->id, now_ms) || WaitsForOthers(&one, oldest, now_ms)) {
      if (known == node->sent.end()) continue;
      forgotten.push_back({topics_[one.topic], one.number});
      node->sent.erase(known);
      continue;
    }
    has_wanted = true;
    const Sent now{one.fetch_offset, one.leader_epoch, one.fetched_epoch, one.generation};
    const bool is_same = known != node->sent.end() && known->second.offset == now.offset &&
                         known->second.leader_epoch == now.leader_epoch &&
                         known->second.fetched_epoch == now.fetched_epoch;
    node->sent[i] = now;
    if (is_same) continue;
    rows.push_back(
        {topics_[one.topic], one.number, one.leader_epoch, one.fetch_offset, one.fetched_epoch});
  }
  if (!has_wanted) {
    RestartSession(node);
    return;
  }
  const auto by_topic = [](const auto& a, const auto& b) { return a.topic < b.topic; };
  std::stable_sort(rows.begin(), rows.end(), by_topic);
  std::stable_sort(forgotten.begin(), forgotten.end(), by_topic);
  // A session that begins knows no partition yet.
  if (node->session.epoch == 0) forgotten.clear();
  Connection& connection = *node->connection;
  connection.Send(
      wire::FetchRequest(connection.NextCorrelation(), settings_.client_id, settings_.fetch,
                         settings_.committed_only, node->session, rows, forgotten),
      kFetch, now_ms, settings_.fetch.wait_ms);
  node->is_fetching = true;
}

bool Fetcher::OnFetched(Node* node, std::unique_ptr<Frame> frame, std::int64_t now_ms) {
  wire::Fetched fetched;
  const bool is_sound = wire::ReadFetch(frame->Body(), &fetched);
  const auto response = std::make_shared<Response>(this, std::move(frame), node->ahead);
  if (!is_sound) return false;
  Throttle(node, fetched.throttle_ms, now_ms);
  if (fetched.error != wire::kNoError) {
    ForgetSession(node);
    const bool is_evicted =
        fetched.error == wire::kSessionIdNotFound || fetched.error == wire::kInvalidSessionEpoch;
    if (!is_evicted) {
      Note(EventOf(fetched.error));
      node->throttled_ms = std::max(node->throttled_ms, now_ms + kRetryMs);
    }
    return true;
  }
  for (wire::FetchedRow& row : fetched.rows) OnFetchedRow(node, &row, response, now_ms);
  if (fetched.session_id == 0) {
    // The broker has no room for a session.
    ForgetSession(node);
  } else {
    node->session = {fetched.session_id, NextEpoch(node->session.epoch)};
  }
  return true;
}

void Fetcher::OnFetchedRow(Node* node, wire::FetchedRow* row,
                           const std::shared_ptr<Response>& response, std::int64_t now_ms) {
  Partition* partition = Find(row->topic, row->partition);
  if (partition == nullptr) return;
  const auto index = static_cast<std::uint32_t>(partition - partitions_.data());
  const auto sent = node->sent.find(index);
  if (sent == node->sent.end() || sent->second.generation != partition->generation ||
      sent->second.offset != partition->fetch_offset || !partition->assigned) {
    return;
  }
  if (row->error != wire::kNoError) {
    OnFetchError(partition, *row, now_ms);
    return;
  }
  ReportError(partition, wire::kNoError);
  if (row->diverging_offset >= 0) {
    OnTruncated(partition, *row, now_ms);
    return;
  }
  OnFetchedRecords(index, row, response);
}

void Fetcher::OnFetchedRecords(std::uint32_t index, wire::FetchedRow* row,
                               const std::shared_ptr<Response>& response) {
  Partition& one = partitions_[index];
  const wire::Extent extent = wire::ExtentOf(row->records, one.fetch_offset);
  const std::int64_t from = one.fetch_offset;
  one.fetch_offset = extent.next_offset;
  if (extent.has_batch) {
    one.fetched_epoch = extent.leader_epoch;
    one.newest_before_ms = one.newest_ms;
    one.newest_ms = std::max(one.newest_ms, extent.newest_ms);
  }
  one.blocked = extent.is_faulty;
  const bool has_stable = settings_.committed_only && row->last_stable_offset >= 0;
  const std::int64_t limit = has_stable ? row->last_stable_offset : row->high_watermark;
  const bool reaches_end = !extent.is_faulty && limit >= 0 && extent.next_offset >= limit;
  one.at_end = reaches_end;
  const bool reports = reaches_end && settings_.reports_ends && one.end != extent.next_offset;
  if (row->records.size == 0 && !reports) return;
  parts_.push_back(
      {index, one.generation, response, row->records, from, std::move(row->aborted), reaches_end});
}

void Fetcher::OnFetchError(Partition* partition, const wire::FetchedRow& row, std::int64_t now_ms) {
  partition->retry_ms = now_ms + kRetryMs;
  if (row.error == wire::kOffsetOutOfRange) {
    // Records that arrived before are delivered first.
    if (partition->position != partition->fetch_offset) return;
    ResetOffset(partition, "offset " + std::to_string(partition->fetch_offset) +
                               " is outside of the partition");
    return;
  }
  if (row.error == wire::kOffsetNotAvailable) return;
  ReportError(partition, row.error);
  if (!IsNewLeader(row.error)) return;
  RefreshMetadata(now_ms);
  const bool is_known = row.leader >= 0 && row.leader_epoch >= partition->leader_epoch &&
                        NodeOf(row.leader) != nullptr;
  partition->leader = is_known ? row.leader : -1;
  if (is_known) partition->leader_epoch = row.leader_epoch;
}

// The log of the new leader ends, at an epoch, before what was read: records that were read are
// gone.
void Fetcher::OnTruncated(Partition* partition, const wire::FetchedRow& row, std::int64_t now_ms) {
  // Records that arrived before are delivered first: a restart at the truncation would skip those
  // below it. The next fetch has the same answer.
  if (partition->position != partition->fetch_offset) {
    partition->retry_ms = now_ms + kRetryMs;
    return;
  }
  const std::string why = "the log was truncated to offset " +
                          std::to_string(row.diverging_offset) + ", and it was read up to offset " +
                          std::to_string(partition->fetch_offset);
  if (settings_.reset == Reset::kError) {
    ResetOffset(partition, why);
    return;
  }
  Note(EventAt(*partition, kErrLogTruncation, why));
  Restart(partition, std::min(row.diverging_offset, partition->fetch_offset));
}

}  // namespace millrace::broker::direct
