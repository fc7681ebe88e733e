#include "broker/wire/messages.h"

#include <cstdio>

namespace millrace::broker::wire {
namespace {

// Reads the head of a response: the correlation was checked by the connection.
Reader BodyOf(Bytes from, Api api) {
  Reader reader(from);
  reader.I32();
  if (api.is_flexible) reader.SkipTags();
  return reader;
}

// Number of rows from `at` on that have the topic of the first.
template <typename Row>
std::size_t RunOf(const std::vector<Row>& rows, std::size_t at) {
  std::size_t end = at;
  while (end < rows.size() && rows[end].topic == rows[at].topic) end++;
  return end - at;
}

template <typename Row>
std::size_t RunsOf(const std::vector<Row>& rows) {
  std::size_t runs = 0;
  for (std::size_t at = 0; at < rows.size(); at += RunOf(rows, at)) runs++;
  return runs;
}

// Nodes and errors of a partition: three arrays of node ids follow the numbers.
constexpr std::size_t kMetadataPartitionBytesMin = 2 + 4 + 4 + 4 + 3 + 1;
constexpr std::size_t kMetadataTopicBytesMin = 2 + 1 + 1 + 1 + 4 + 1;
constexpr std::size_t kMetadataBrokerBytesMin = 4 + 1 + 4 + 1 + 1;
constexpr std::size_t kListedPartitionBytes = 4 + 2 + 8 + 8 + 4;
constexpr std::size_t kFetchedPartitionBytesMin = 4 + 2 + 8 + 8 + 8 + 1 + 4 + 1 + 1;
constexpr std::size_t kAbortedBytesMin = 8 + 8 + 1;
constexpr std::uint64_t kTagDiverging = 0;
constexpr std::uint64_t kTagLeader = 1;

void ReadPartitionTags(Reader* reader, FetchedRow* row) {
  for (std::size_t count = reader->TagCount(); count > 0; count--) {
    const std::uint64_t tag = reader->Unsigned();
    Reader field(reader->Take(reader->Unsigned()));
    if (tag == kTagDiverging) {
      row->diverging_epoch = field.I32();
      row->diverging_offset = field.I64();
      if (!field.ok()) row->diverging_offset = -1;
    } else if (tag == kTagLeader) {
      row->leader = field.I32();
      row->leader_epoch = field.I32();
      if (!field.ok()) row->leader = -1;
    }
  }
}

void ReadFetchedPartition(Reader* reader, std::string_view topic, FetchedRow* row) {
  row->topic = topic;
  row->partition = reader->I32();
  row->error = reader->I16();
  row->high_watermark = reader->I64();
  row->last_stable_offset = reader->I64();
  reader->I64();  // first offset of the log
  const std::size_t aborted = reader->CompactCount(kAbortedBytesMin);
  row->aborted.reserve(aborted);
  for (std::size_t i = 0; i < aborted; i++) {
    const std::int64_t producer_id = reader->I64();
    row->aborted.push_back({producer_id, reader->I64()});
    reader->SkipTags();
  }
  reader->I32();  // replica nearer to the client
  row->records = reader->CompactBlock();
  ReadPartitionTags(reader, row);
}

}  // namespace

Writer BeginRequest(Api api, std::int32_t correlation, std::string_view client_id) {
  Writer writer;
  writer.I32(0);
  writer.I16(api.key);
  writer.I16(api.version);
  writer.I32(correlation);
  writer.Text(client_id);
  if (api.is_flexible) writer.NoTags();
  return writer;
}

std::string ApiVersionsRequest(std::int32_t correlation, std::string_view client_id) {
  return BeginRequest(kApiVersions, correlation, client_id).Finish();
}

bool ReadApiVersions(Bytes from, std::int16_t* error, std::vector<ApiRange>* out) {
  Reader reader = BodyOf(from, kApiVersions);
  *error = reader.I16();
  const std::size_t count = reader.Count(6);
  out->reserve(count);
  for (std::size_t i = 0; i < count; i++) {
    const std::int16_t key = reader.I16();
    const std::int16_t oldest = reader.I16();
    out->push_back({key, oldest, reader.I16()});
  }
  return reader.ok();
}

std::string MissingApi(const std::vector<ApiRange>& ranges) {
  static constexpr struct {
    Api api;
    const char* name;
  } kNeeded[] = {{kFetch, "Fetch"}, {kMetadata, "Metadata"}, {kListOffsets, "ListOffsets"}};
  for (const auto& [api, name] : kNeeded) {
    bool has = false;
    for (const ApiRange& range : ranges) {
      has = has || (range.key == api.key && range.oldest <= api.version &&
                    api.version <= range.newest);
    }
    if (!has) {
      char text[96];
      std::snprintf(text, sizeof text, "the broker has no version %d of the request %s", api.version,
                    name);
      return text;
    }
  }
  return {};
}

std::string SaslHandshakeRequest(std::int32_t correlation, std::string_view client_id,
                                 std::string_view mechanism) {
  Writer writer = BeginRequest(kSaslHandshake, correlation, client_id);
  writer.Text(mechanism);
  return writer.Finish();
}

bool ReadSaslHandshake(Bytes from, SaslHandshake* out) {
  Reader reader = BodyOf(from, kSaslHandshake);
  out->error = reader.I16();
  for (std::size_t count = reader.Count(2); count > 0; count--) {
    if (!out->mechanisms.empty()) out->mechanisms += ", ";
    out->mechanisms += reader.Text();
  }
  return reader.ok();
}

std::string SaslAuthenticateRequest(std::int32_t correlation, std::string_view client_id,
                                    std::string_view message) {
  Writer writer = BeginRequest(kSaslAuthenticate, correlation, client_id);
  writer.Block(message);
  return writer.Finish();
}

bool ReadSaslAuthenticate(Bytes from, SaslAnswer* out) {
  Reader reader = BodyOf(from, kSaslAuthenticate);
  out->error = reader.I16();
  out->text = reader.Text();
  const Bytes message = reader.Block();
  out->message = {reinterpret_cast<const char*>(message.data), message.size};
  out->lifetime_ms = reader.I64();
  return reader.ok();
}

std::string MetadataRequest(std::int32_t correlation, std::string_view client_id,
                            const std::vector<std::string>& topics) {
  Writer writer = BeginRequest(kMetadata, correlation, client_id);
  writer.CompactCount(topics.size());
  for (const std::string& topic : topics) {
    writer.CompactText(topic);
    writer.NoTags();
  }
  writer.I8(0);  // no creation of topics
  writer.I8(0);  // no operations of the cluster
  writer.I8(0);  // nor of topics
  writer.NoTags();
  return writer.Finish();
}

bool ReadMetadata(Bytes from, Metadata* out) {
  Reader reader = BodyOf(from, kMetadata);
  out->throttle_ms = reader.I32();
  for (std::size_t count = reader.CompactCount(kMetadataBrokerBytesMin); count > 0; count--) {
    BrokerRow row{};
    row.id = reader.I32();
    row.host = reader.CompactText();
    row.port = reader.I32();
    reader.CompactText();
    reader.SkipTags();
    out->brokers.push_back(row);
  }
  reader.CompactText();
  reader.I32();
  for (std::size_t topics = reader.CompactCount(kMetadataTopicBytesMin); topics > 0; topics--) {
    const std::int16_t error = reader.I16();
    const std::string_view topic = reader.CompactText();
    reader.I8();
    std::size_t count = reader.CompactCount(kMetadataPartitionBytesMin);
    if (error != kNoError) out->leaders.push_back({topic, -1, error, -1, -1});
    for (; count > 0; count--) {
      LeaderRow row{topic, -1, 0, -1, -1};
      row.error = reader.I16();
      row.partition = reader.I32();
      row.leader = reader.I32();
      row.leader_epoch = reader.I32();
      for (int list = 0; list < 3; list++) reader.Skip(4 * reader.CompactCount(4));
      reader.SkipTags();
      out->leaders.push_back(row);
    }
    reader.I32();
    reader.SkipTags();
  }
  return reader.ok();
}

std::string ListOffsetsRequest(std::int32_t correlation, std::string_view client_id,
                               bool committed_only, const std::vector<ListRow>& rows) {
  Writer writer = BeginRequest(kListOffsets, correlation, client_id);
  writer.I32(-1);
  writer.I8(committed_only ? 1 : 0);
  writer.Count(RunsOf(rows));
  for (std::size_t at = 0; at < rows.size();) {
    const std::size_t end = at + RunOf(rows, at);
    writer.Text(rows[at].topic);
    writer.Count(end - at);
    for (; at < end; at++) {
      writer.I32(rows[at].partition);
      writer.I32(rows[at].leader_epoch);
      writer.I64(rows[at].timestamp);
    }
  }
  return writer.Finish();
}

bool ReadListOffsets(Bytes from, std::int32_t* throttle_ms, std::vector<ListedRow>* out) {
  Reader reader = BodyOf(from, kListOffsets);
  *throttle_ms = reader.I32();
  for (std::size_t topics = reader.Count(6); topics > 0; topics--) {
    const std::string_view topic = reader.Text();
    for (std::size_t count = reader.Count(kListedPartitionBytes); count > 0; count--) {
      ListedRow row{topic, -1, 0, -1, -1};
      row.partition = reader.I32();
      row.error = reader.I16();
      reader.I64();
      row.offset = reader.I64();
      row.leader_epoch = reader.I32();
      out->push_back(row);
    }
  }
  return reader.ok();
}

std::string FetchRequest(std::int32_t correlation, std::string_view client_id,
                         const FetchLimits& limits, bool committed_only, FetchSession session,
                         const std::vector<FetchRow>& rows,
                         const std::vector<TopicPlace>& forgotten) {
  Writer writer = BeginRequest(kFetch, correlation, client_id);
  writer.I32(-1);
  writer.I32(limits.wait_ms);
  writer.I32(limits.bytes_min);
  writer.I32(limits.bytes_max);
  writer.I8(committed_only ? 1 : 0);
  writer.I32(session.id);
  writer.I32(session.epoch);
  writer.CompactCount(RunsOf(rows));
  for (std::size_t at = 0; at < rows.size();) {
    const std::size_t end = at + RunOf(rows, at);
    writer.CompactText(rows[at].topic);
    writer.CompactCount(end - at);
    for (; at < end; at++) {
      writer.I32(rows[at].partition);
      writer.I32(rows[at].leader_epoch);
      writer.I64(rows[at].offset);
      writer.I32(rows[at].fetched_epoch);
      writer.I64(-1);  // first offset of a follower's log
      writer.I32(limits.partition_bytes_max);
      writer.NoTags();
    }
    writer.NoTags();
  }
  writer.CompactCount(RunsOf(forgotten));
  for (std::size_t at = 0; at < forgotten.size();) {
    const std::size_t end = at + RunOf(forgotten, at);
    writer.CompactText(forgotten[at].topic);
    writer.CompactCount(end - at);
    for (; at < end; at++) writer.I32(forgotten[at].partition);
    writer.NoTags();
  }
  writer.CompactText("");
  writer.NoTags();
  return writer.Finish();
}

bool ReadFetch(Bytes from, Fetched* out) {
  Reader reader = BodyOf(from, kFetch);
  out->throttle_ms = reader.I32();
  out->error = reader.I16();
  out->session_id = reader.I32();
  for (std::size_t topics = reader.CompactCount(3); topics > 0; topics--) {
    const std::string_view topic = reader.CompactText();
    for (std::size_t count = reader.CompactCount(kFetchedPartitionBytesMin); count > 0; count--) {
      ReadFetchedPartition(&reader, topic, &out->rows.emplace_back());
    }
    reader.SkipTags();
  }
  reader.SkipTags();
  return reader.ok();
}

}  // namespace millrace::broker::wire
