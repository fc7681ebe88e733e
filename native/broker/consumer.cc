#include "broker/consumer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "broker/library.h"
#include "broker/places.h"
#include "broker/record.h"

namespace millrace::broker {
namespace {

constexpr int kSliceMs = 250;
constexpr std::int64_t kOffsetStored = RD_KAFKA_OFFSET_STORED;
constexpr std::int64_t kNoEnd = -1;

}  // namespace

struct Consumer::Filling {
  RecordRows into;
  ConsumeOutcome* out;
  std::uint32_t rows = 0;
  std::uint32_t used = 0;
};

std::unique_ptr<Consumer> Consumer::Open(const Properties& properties, ConsumerHost* host,
                                         std::string* error) {
  std::unique_ptr<Consumer> consumer(new Consumer(host));
  rd_kafka_conf_t* conf = MakeConf(properties, consumer.get(), error);
  if (conf == nullptr) return nullptr;
  for (const auto& [name, value] : properties) {
    if (name == "enable.partition.eof") consumer->ends_ = value == "true";
  }
  rd_kafka_conf_set_rebalance_cb(
      conf, [](rd_kafka_t* client, rd_kafka_resp_err_t code, List* list, void* opaque) {
        OnRebalance(client, code, list, opaque);
      });
  consumer->receipts_.Watch(conf);
  char text[512];
  consumer->client_ = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
  if (consumer->client_ == nullptr) {
    rd_kafka_conf_destroy(conf);
    *error = text;
    return nullptr;
  }
  rd_kafka_poll_set_consumer(consumer->client_);
  consumer->queue_ = rd_kafka_queue_get_consumer(consumer->client_);
  if (consumer->queue_ == nullptr) {
    *error = "a consumer needs a group.id";
    return nullptr;
  }
  consumer->receipts_.Follow(consumer->queue_);
  return consumer;
}

Consumer::~Consumer() {
  DropHeld(nullptr);
  for (const Rebalance& one : rebalances_) rd_kafka_topic_partition_list_destroy(one.partitions);
  for (const Topic& topic : topics_) rd_kafka_topic_destroy(topic.handle);
  receipts_.Follow(nullptr);
  if (queue_ != nullptr) rd_kafka_queue_destroy(queue_);
  if (client_ != nullptr) rd_kafka_destroy_flags(client_, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}

void Consumer::Wake() { rd_kafka_queue_yield(queue_); }

void Consumer::OnRebalance(rd_kafka_t*, int error, List* list, void* opaque) {
  auto* self = static_cast<Consumer*>(static_cast<Journal*>(opaque));
  const Rebalance rebalance{error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS,
                            rd_kafka_topic_partition_list_copy(list)};
  self->rebalances_.push_back(rebalance);
  self->Wake();
}

void Consumer::CarryOutAll() {
  while (!rebalances_.empty()) {
    const Rebalance first = rebalances_.front();
    rebalances_.erase(rebalances_.begin());
    CarryOut(first);
  }
}

void Consumer::CarryOut(const Rebalance& rebalance) {
  const bool lost = rd_kafka_assignment_lost(client_) != 0;
  const RebalanceKind kind = rebalance.assign ? RebalanceKind::kAssigned
                             : lost           ? RebalanceKind::kLost
                                              : RebalanceKind::kRevoked;
  if (!host_->Stopping()) host_->OnRebalance(kind, PlacesOf(rebalance.partitions));
  Complete(rebalance);
}

// Completes a rebalance. Takes ownership of the list.
void Consumer::Complete(const Rebalance& rebalance) {
  const std::vector<Place> places = PlacesOf(rebalance.partitions);
  // The last protocol applies: while the consumer leaves the group librdkafka reports NONE, and
  // null afterwards.
  const char* protocol = rd_kafka_rebalance_protocol(client_);
  if (protocol != nullptr && std::strcmp(protocol, "NONE") != 0) {
    cooperative_ = std::strcmp(protocol, "COOPERATIVE") == 0;
  }
  Event failed;
  if (cooperative_) {
    failed = EventOfError(rebalance.assign
                              ? rd_kafka_incremental_assign(client_, rebalance.partitions)
                              : rd_kafka_incremental_unassign(client_, rebalance.partitions));
  } else if (const auto code =
                 rd_kafka_assign(client_, rebalance.assign ? rebalance.partitions : nullptr);
             code != RD_KAFKA_RESP_ERR_NO_ERROR) {
    failed = EventOf(code);
  }
  rd_kafka_topic_partition_list_destroy(rebalance.partitions);
  if (failed.code != 0) Note(failed);
  for (const Place& place : places) {
    if (rebalance.assign && failed.code == 0) {
      Enter(place, kOffsetStored);
    } else if (Partition* partition = PartitionOf(place)) {
      Forget(*partition);
    }
  }
  if (rebalance.assign && failed.code == 0 && !places.empty()) Pause(places, false);
}

void Consumer::Enter(const Place& place, std::int64_t position) {
  Partition* partition = PartitionOf(place);
  if (partition == nullptr) {
    rd_kafka_topic_t* topic = nullptr;
    for (const Topic& known : topics_) {
      if (known.name == place.topic) topic = known.handle;
    }
    if (topic == nullptr) {
      topic = rd_kafka_topic_new(client_, place.topic.c_str(), nullptr);
      if (topic == nullptr) return;
      topics_.push_back({topic, place.topic});
    }
    partition = PartitionOf(topic, place.partition);
  }
  DropHeld(partition);
  partition->assigned = true;
  partition->paused = false;
  partition->position = position;
  partition->end = kNoEnd;
}

void Consumer::Forget(const Partition& partition) {
  DropHeld(&partition);
  const_cast<Partition&>(partition).assigned = false;
}

// Drops the held records of one partition, or of all (null).
void Consumer::DropHeld(const Partition* partition) {
  const auto gone = [&](const Held& held) {
    rd_kafka_message_t* message = held.message;
    if (partition != nullptr &&
        (message->rkt != partition->topic || message->partition != partition->partition)) {
      return false;
    }
    rd_kafka_message_destroy(message);
    return true;
  };
  held_.erase(std::remove_if(held_.begin(), held_.end(), gone), held_.end());
}

std::uint32_t Consumer::TopicIndex(rd_kafka_topic_t* topic) {
  for (std::uint32_t i = 0; i < topics_.size(); i++) {
    if (topics_[i].handle == topic) return i;
  }
  // A second handle keeps librdkafka from reusing the pointer for another topic.
  const char* name = rd_kafka_topic_name(topic);
  rd_kafka_topic_t* handle = rd_kafka_topic_new(client_, name, nullptr);
  topics_.push_back({handle, name});
  return static_cast<std::uint32_t>(topics_.size() - 1);
}

Consumer::Partition* Consumer::PartitionOf(rd_kafka_topic_t* topic, std::int32_t partition) {
  if (last_ < partitions_.size() && partitions_[last_].topic == topic &&
      partitions_[last_].partition == partition) {
    return &partitions_[last_];
  }
  for (std::uint32_t i = 0; i < partitions_.size(); i++) {
    if (partitions_[i].topic == topic && partitions_[i].partition == partition) {
      last_ = i;
      return &partitions_[i];
    }
  }
  last_ = static_cast<std::uint32_t>(partitions_.size());
  partitions_.push_back({topic, partition, TopicIndex(topic), false, false, kOffsetStored, kNoEnd});
  return &partitions_[last_];
}

Consumer::Partition* Consumer::PartitionOf(const Place& place) {
  for (Partition& one : partitions_) {
    if (one.partition == place.partition && topics_[one.topic_index].name == place.topic) {
      return &one;
    }
  }
  return nullptr;
}

// Reads the available records; waits for the first only.
//
// The batch call of librdkafka treats the end of a partition as a record: it moves the client's
// position one too far until the next record arrives. A resume starts from that position, and skips
// a record or is out of range; each rebalance resumes. A consumer with end events therefore reads
// records one at a time as soon as there may be resumes. That costs a lock and three clock reads
// for each record.
std::size_t Consumer::DrawBatch(rd_kafka_message_t** into, std::size_t most, int wait_ms) {
  if (!one_by_one_) {
    const ssize_t got = rd_kafka_consume_batch_queue(queue_, wait_ms, into, most);
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  std::size_t got = 0;
  while (got < most && (into[got] = rd_kafka_consume_queue(queue_, got == 0 ? wait_ms : 0))) got++;
  return got;
}

// Appends the available records to `held_`; waits for the first only.
std::size_t Consumer::Draw(std::size_t most, int wait_ms) {
  drawn_.resize(most);
  received_.clear();
  rd_kafka_message_t** const into = drawn_.data();
  const auto draw_now = [&](std::size_t from) {
    receipts_.BeginDraw();
    const std::size_t taken = DrawBatch(into + from, most - from, 0);
    receipts_.EndDraw(taken, &received_);
    return taken;
  };
  std::size_t taken = draw_now(0);
  if (taken == 0 && wait_ms > 0 && rebalances_.empty()) {
    taken = DrawBatch(into, 1, wait_ms);
    receipts_.EndDraw(taken, &received_);
    if (taken == 1 && most > 1) taken += draw_now(1);
  }
  for (std::size_t i = 0; i < taken; i++) held_.push_back({into[i], received_[i]});
  return taken;
}

void Consumer::Consume(const RecordRows& into, int wait_ms, ConsumeOutcome* out) {
  const std::int64_t deadline = NowMs() + wait_ms;
  Filling filling{into, out};
  for (;;) {
    host_->ServeJobs();
    CarryOutAll();
    Fill(&filling);
    const std::int64_t left = deadline - NowMs();
    const bool full = filling.rows >= into.row_capacity || !held_.empty();
    if (!full && !host_->Interrupted()) {
      const double room = (into.arena_capacity - filling.used) / bytes_a_row_ + 1;
      const auto most = static_cast<std::size_t>(
          std::min<double>(into.row_capacity - filling.rows, std::max(1.0, room)));
      const bool first = filling.rows == 0 && out->ends.empty();
      const int wait = first ? static_cast<int>(std::clamp<std::int64_t>(left, 0, kSliceMs)) : 0;
      if (Draw(most, wait) > 0) Fill(&filling);
    }
    out->events = Journal::Drain();
    const bool something = filling.rows > 0 || !out->ends.empty() || !out->events.empty();
    if (something || left <= 0 || host_->Interrupted()) break;
    // Only rows of paused partitions are held: wait without spinning.
    if (!held_.empty()) Draw(1, static_cast<int>(std::min<std::int64_t>(left, 10)));
  }
  into.at.header->row_count = filling.rows;
  into.at.header->arena_used = filling.used;
  out->rows = filling.rows;
  for (; topics_reported_ < topics_.size(); topics_reported_++) {
    out->topics.push_back(topics_[topics_reported_].name);
  }
}

// Moves held records into the batch, in order, as far as they fit.
void Consumer::Fill(Filling* filling) {
  std::size_t kept = 0;
  std::size_t at = 0;
  for (; at < held_.size(); at++) {
    rd_kafka_message_t* message = held_[at].message;
    if (message->rkt == nullptr || message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
      if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        PartitionOf(message->rkt, message->partition)->end = message->offset;
        filling->out->ends.push_back(
            {rd_kafka_topic_name(message->rkt), message->partition, message->offset});
      } else {
        Event event = EventOf(message->err);
        // The payload of an error message is its text.
        if (message->payload != nullptr && message->len > 0) {
          event.message.assign(static_cast<const char*>(message->payload), message->len);
        }
        if (message->rkt != nullptr) event.topic = rd_kafka_topic_name(message->rkt);
        event.partition = message->partition;
        Note(std::move(event));
      }
      rd_kafka_message_destroy(message);
      continue;
    }
    Partition* partition = PartitionOf(message->rkt, message->partition);
    if (!partition->assigned) {
      rd_kafka_message_destroy(message);
    } else if (partition->paused) {
      held_[kept++] = held_[at];
    } else if (Append(filling, held_[at], partition)) {
      rd_kafka_message_destroy(message);
    } else {
      break;
    }
  }
  if (kept == at) return;
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(kept),
              held_.begin() + static_cast<std::ptrdiff_t>(at));
}

// Appends one record. False, with nothing written, when it does not fit.
bool Consumer::Append(Filling* filling, const Held& held, Partition* partition) {
  rd_kafka_message_t* message = held.message;
  const RecordRows& into = filling->into;
  if (filling->rows >= into.row_capacity) return false;
  rd_kafka_headers_t* headers = nullptr;
  const bool has_headers = MayHaveHeaders(message) && rd_kafka_message_headers(message, &headers) ==
                                                          RD_KAFKA_RESP_ERR_NO_ERROR;
  const std::size_t header_bytes = has_headers ? HeaderBytes(headers) : 0;
  const std::size_t key_bytes = message->key == nullptr ? 0 : message->key_len;
  const std::size_t value_bytes = message->payload == nullptr ? 0 : message->len;
  const std::size_t bytes = key_bytes + value_bytes + header_bytes;
  if (bytes > into.arena_capacity - filling->used) {
    if (filling->rows == 0) {
      Event event;
      event.code = kErrOversize;
      event.topic = topics_[partition->topic_index].name;
      event.partition = message->partition;
      char text[160];
      std::snprintf(text, sizeof text,
                    "the record at offset %lld has %zu bytes, more than the arena's %u",
                    static_cast<long long>(message->offset), bytes, into.arena_capacity);
      event.message = text;
      Note(std::move(event));
    }
    return false;
  }
  WriteRecord(into.at, filling->rows, filling->used, message, partition->topic_index, headers,
              header_bytes);
  partition->position = message->offset + 1;
  partition->end = kNoEnd;
  bytes_a_row_ += (static_cast<double>(bytes) - bytes_a_row_) / 64;
  filling->used += static_cast<std::uint32_t>(bytes);
  filling->rows++;
  std::vector<ReceiptRun>& receipts = filling->out->receipts;
  if (receipts.empty() || receipts.back().at_us != held.received_us) {
    receipts.push_back({0, held.received_us});
  }
  receipts.back().rows++;
  return true;
}

// Prepares for resumes, which are possible from now on: corrects every position that an end event
// moved too far.
Event Consumer::BeginResumes() {
  if (!ends_ || one_by_one_) return {};
  for (const Held& held : held_) {
    const rd_kafka_message_t* message = held.message;
    if (message->rkt == nullptr) continue;
    const bool is_end = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
    PartitionOf(message->rkt, message->partition)->end = is_end ? message->offset : kNoEnd;
  }
  std::vector<Place> places;
  for (const Partition& one : partitions_) {
    if (one.assigned && one.end != kNoEnd) {
      places.push_back({topics_[one.topic_index].name, one.partition, one.end});
    }
  }
  if (!places.empty()) {
    List* list = ListOf(places);
    Event event = EventOfError(rd_kafka_seek_partitions(client_, list, 4 * kSliceMs));
    if (event.code == 0) event = FirstError(list);
    rd_kafka_topic_partition_list_destroy(list);
    if (event.code != 0) return event;
  }
  one_by_one_ = true;
  return {};
}

Event Consumer::Subscribe(const std::vector<std::string>& topics) {
  if (Event failed = BeginResumes(); failed.code != 0) return failed;
  List* list = rd_kafka_topic_partition_list_new(static_cast<int>(topics.size()));
  for (const std::string& topic : topics) {
    rd_kafka_topic_partition_list_add(list, topic.c_str(), RD_KAFKA_PARTITION_UA);
  }
  const rd_kafka_resp_err_t code = rd_kafka_subscribe(client_, list);
  rd_kafka_topic_partition_list_destroy(list);
  return code == RD_KAFKA_RESP_ERR_NO_ERROR ? Event{} : EventOf(code);
}

Event Consumer::Assign(const std::vector<Place>& places) {
  List* list = ListOf(places);
  const rd_kafka_resp_err_t code = rd_kafka_assign(client_, list);
  rd_kafka_topic_partition_list_destroy(list);
  if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return EventOf(code);
  DropHeld(nullptr);
  for (Partition& one : partitions_) one.assigned = false;
  for (const Place& place : places) {
    Enter(place, place.offset >= 0 ? place.offset : kOffsetStored);
  }
  return {};
}

Event Consumer::Pause(const std::vector<Place>& places, bool pause) {
  if (Event failed = BeginResumes(); failed.code != 0) return failed;
  List* list = ListOf(places);
  const rd_kafka_resp_err_t code =
      pause ? rd_kafka_pause_partitions(client_, list) : rd_kafka_resume_partitions(client_, list);
  Event event = code == RD_KAFKA_RESP_ERR_NO_ERROR ? FirstError(list) : EventOf(code);
  rd_kafka_topic_partition_list_destroy(list);
  for (const Place& place : places) {
    if (Partition* partition = PartitionOf(place)) partition->paused = pause;
  }
  return event;
}

Event Consumer::Seek(const Place& place, int timeout_ms) {
  const std::int64_t deadline = NowMs() + timeout_ms;
  for (;;) {
    List* list = ListOf({place});
    Event event = EventOfError(rd_kafka_seek_partitions(client_, list, 4 * kSliceMs));
    if (event.code == 0) event = FirstError(list);
    rd_kafka_topic_partition_list_destroy(list);
    Partition* partition = PartitionOf(place);
    if (event.code == 0 && partition != nullptr) {
      DropHeld(partition);
      partition->position = place.offset >= 0 ? place.offset : kOffsetStored;
      partition->end = kNoEnd;
      return {};
    }
    // A partition that was assigned a moment ago has no fetcher to seek in yet.
    const bool soon =
        partition != nullptr && partition->assigned &&
        (event.code == RD_KAFKA_RESP_ERR__STATE || event.code == RD_KAFKA_RESP_ERR__TIMED_OUT ||
         event.code == RD_KAFKA_RESP_ERR__IN_PROGRESS);
    if (!soon || NowMs() > deadline || host_->Stopping()) {
      return event.code == 0 ? EventOf(kErrState) : event;
    }
    Draw(1, 10);
  }
}

bool Consumer::Leave(int timeout_ms) {
  // rd_kafka_consumer_close is not used: Wake ends its wait before the group is left.
  rd_kafka_queue_t* queue = rd_kafka_queue_new(client_);
  const std::int64_t deadline = NowMs() + timeout_ms;
  CarryOutAll();
  DropHeld(nullptr);
  Event failed = EventOfError(rd_kafka_consumer_close_queue(client_, queue));
  while (failed.code == 0 && rd_kafka_consumer_closed(client_) == 0 && !host_->Stopping() &&
         NowMs() < deadline) {
    rd_kafka_message_t* message = nullptr;
    if (rd_kafka_consume_batch_queue(queue, 20, &message, 1) == 1) {
      rd_kafka_message_destroy(message);
    }
    host_->ServeJobs();
    CarryOutAll();
  }
  rd_kafka_queue_destroy(queue);
  return rd_kafka_consumer_closed(client_) != 0;
}

std::vector<Place> Consumer::Positions() const {
  std::vector<Place> places;
  for (const Partition& one : partitions_) {
    if (one.assigned)
      places.push_back({topics_[one.topic_index].name, one.partition, one.position});
  }
  return places;
}

Event Consumer::Commit(const std::vector<Place>& offsets, int timeout_ms) {
  rd_kafka_queue_t* queue = rd_kafka_queue_new(client_);
  List* list = ListOf(offsets);
  const rd_kafka_resp_err_t code = rd_kafka_commit_queue(client_, list, queue, nullptr, nullptr);
  rd_kafka_topic_partition_list_destroy(list);
  Event answer = EventOf(code);
  bool answered = code != RD_KAFKA_RESP_ERR_NO_ERROR;
  const std::int64_t deadline = NowMs() + timeout_ms;
  while (!answered) {
    rd_kafka_event_t* event = rd_kafka_queue_poll(queue, kSliceMs);
    if (event != nullptr && rd_kafka_event_type(event) == RD_KAFKA_EVENT_OFFSET_COMMIT) {
      answered = true;
      answer = EventOf(rd_kafka_event_error(event));
      const List* done = rd_kafka_event_topic_partition_list(event);
      if (answer.code == 0 && done != nullptr) answer = FirstError(done);
    } else if (host_->Stopping() || NowMs() > deadline) {
      answered = true;
      answer = EventOf(host_->Stopping() ? kErrDestroy : kErrTimedOut);
    }
    if (event != nullptr) rd_kafka_event_destroy(event);
  }
  rd_kafka_queue_destroy(queue);
  return answer;
}

Event Consumer::Committed(std::vector<Place>* places, int timeout_ms) {
  const std::int64_t deadline = NowMs() + timeout_ms;
  for (;;) {
    List* list = ListOf(*places);
    const auto left = static_cast<int>(std::max<std::int64_t>(1, deadline - NowMs()));
    const rd_kafka_resp_err_t code =
        rd_kafka_committed(client_, list, std::min(left, 4 * kSliceMs));
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) *places = PlacesOf(list);
    Event event = code == RD_KAFKA_RESP_ERR_NO_ERROR ? FirstError(list) : EventOf(code);
    rd_kafka_topic_partition_list_destroy(list);
    const bool again = event.code == kErrTimedOut || event.code == RD_KAFKA_RESP_ERR__TRANSPORT;
    if (!again || host_->Stopping() || NowMs() >= deadline) return event;
  }
}

}  // namespace millrace::broker
