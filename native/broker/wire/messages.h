// Requests and responses of Kafka's protocol that the direct client uses, each in one version.
//
// Source: Kafka protocol guide. A response is read in place: its texts and spans point into it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "broker/wire/reader.h"
#include "broker/wire/record_batch.h"
#include "broker/wire/writer.h"

namespace millrace::broker::wire {

struct Api {
  std::int16_t key;
  std::int16_t version;
  // Form of the head, with tagged fields.
  bool is_flexible;
};
inline constexpr Api kFetch{1, 12, true};             // Kafka 2.7
inline constexpr Api kListOffsets{2, 5, false};       // Kafka 2.2
inline constexpr Api kMetadata{3, 9, true};           // Kafka 2.4
inline constexpr Api kSaslHandshake{17, 1, false};    // Kafka 1.0
inline constexpr Api kApiVersions{18, 0, false};      // Kafka 0.10
inline constexpr Api kSaslAuthenticate{36, 1, false}; // Kafka 2.2

// Error codes of the broker that the client acts on.
inline constexpr std::int16_t kNoError = 0;
inline constexpr std::int16_t kOffsetOutOfRange = 1;
inline constexpr std::int16_t kUnknownTopicOrPartition = 3;
inline constexpr std::int16_t kLeaderNotAvailable = 5;
inline constexpr std::int16_t kNotLeader = 6;
inline constexpr std::int16_t kReplicaNotAvailable = 9;
inline constexpr std::int16_t kTopicAuthorizationFailed = 29;
inline constexpr std::int16_t kStorageError = 56;
inline constexpr std::int16_t kSessionIdNotFound = 70;
inline constexpr std::int16_t kInvalidSessionEpoch = 71;
inline constexpr std::int16_t kFencedLeaderEpoch = 74;
inline constexpr std::int16_t kUnknownLeaderEpoch = 75;
inline constexpr std::int16_t kOffsetNotAvailable = 78;
inline constexpr std::int16_t kUnknownTopicId = 100;

// Size, to be filled by Writer::Finish, and head of a request.
Writer BeginRequest(Api api, std::int32_t correlation, std::string_view client_id);

std::string ApiVersionsRequest(std::int32_t correlation, std::string_view client_id);
// The oldest and newest version of a request that a broker has.
struct ApiRange {
  std::int16_t key;
  std::int16_t oldest;
  std::int16_t newest;
};
bool ReadApiVersions(Bytes from, std::int16_t* error, std::vector<ApiRange>* out);
// Text of the first request that the broker does not have; empty when it has all.
std::string MissingApi(const std::vector<ApiRange>& ranges);

std::string SaslHandshakeRequest(std::int32_t correlation, std::string_view client_id,
                                 std::string_view mechanism);
struct SaslHandshake {
  std::int16_t error = 0;
  std::string mechanisms;
};
bool ReadSaslHandshake(Bytes from, SaslHandshake* out);

std::string SaslAuthenticateRequest(std::int32_t correlation, std::string_view client_id,
                                    std::string_view message);
struct SaslAnswer {
  std::int16_t error = 0;
  std::string_view text;
  std::string_view message;
  // Time after which the broker wants the client to authenticate again; 0: never.
  std::int64_t lifetime_ms = 0;
};
bool ReadSaslAuthenticate(Bytes from, SaslAnswer* out);

std::string MetadataRequest(std::int32_t correlation, std::string_view client_id,
                            const std::vector<std::string>& topics);
struct BrokerRow {
  std::int32_t id;
  std::string_view host;
  std::int32_t port;
};
struct LeaderRow {
  std::string_view topic;
  // -1 where the topic itself has the error.
  std::int32_t partition;
  std::int16_t error;
  std::int32_t leader;
  std::int32_t leader_epoch;
};
struct Metadata {
  std::int32_t throttle_ms = 0;
  std::vector<BrokerRow> brokers;
  std::vector<LeaderRow> leaders;
};
bool ReadMetadata(Bytes from, Metadata* out);

// Timestamps of ListOffsets.
inline constexpr std::int64_t kEarliest = -2;
inline constexpr std::int64_t kLatest = -1;

struct ListRow {
  std::string_view topic;
  std::int32_t partition;
  std::int32_t leader_epoch;
  std::int64_t timestamp;
};
std::string ListOffsetsRequest(std::int32_t correlation, std::string_view client_id,
                               bool committed_only, const std::vector<ListRow>& rows);
struct ListedRow {
  std::string_view topic;
  std::int32_t partition;
  std::int16_t error;
  std::int64_t offset;
  std::int32_t leader_epoch;
};
bool ReadListOffsets(Bytes from, std::int32_t* throttle_ms, std::vector<ListedRow>* out);

struct FetchRow {
  std::string_view topic;
  std::int32_t partition;
  std::int32_t leader_epoch;
  std::int64_t offset;
  // Leader epoch of the last batch that was read, or -1: the broker compares it with its log.
  std::int32_t fetched_epoch;
};
struct FetchLimits {
  std::int32_t wait_ms;
  std::int32_t bytes_min;
  std::int32_t bytes_max;
  std::int32_t partition_bytes_max;
};
struct FetchSession {
  std::int32_t id = 0;
  std::int32_t epoch = 0;
};
struct TopicPlace {
  std::string_view topic;
  std::int32_t partition;
};
// REQUIRES: rows of a topic are beside each other.
std::string FetchRequest(std::int32_t correlation, std::string_view client_id,
                         const FetchLimits& limits, bool committed_only, FetchSession session,
                         const std::vector<FetchRow>& rows,
                         const std::vector<TopicPlace>& forgotten);

struct FetchedRow {
  std::string_view topic;
  std::int32_t partition = -1;
  std::int16_t error = 0;
  std::int64_t high_watermark = -1;
  std::int64_t last_stable_offset = -1;
  std::vector<Aborted> aborted;
  // Offset at which the log of the broker parted from what was read, or -1.
  std::int64_t diverging_offset = -1;
  std::int32_t diverging_epoch = -1;
  // New leader, or -1.
  std::int32_t leader = -1;
  std::int32_t leader_epoch = -1;
  Bytes records;
};
struct Fetched {
  std::int32_t throttle_ms = 0;
  std::int16_t error = 0;
  std::int32_t session_id = 0;
  std::vector<FetchedRow> rows;
};
bool ReadFetch(Bytes from, Fetched* out);

}  // namespace millrace::broker::wire
