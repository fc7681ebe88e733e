#include "broker/places.h"

namespace millrace::broker {

List* ListOf(const std::vector<Place>& places) {
  List* list = rd_kafka_topic_partition_list_new(static_cast<int>(places.size()));
  for (const Place& place : places) {
    rd_kafka_topic_partition_list_add(list, place.topic.c_str(), place.partition)->offset =
        place.offset;
  }
  return list;
}

std::vector<Place> PlacesOf(const List* list) {
  std::vector<Place> places;
  for (int i = 0; i < list->cnt; i++) {
    const rd_kafka_topic_partition_t& one = list->elems[i];
    places.push_back({one.topic, one.partition, one.offset, static_cast<int>(one.err)});
  }
  return places;
}

Event FirstError(const List* list) {
  for (int i = 0; i < list->cnt; i++) {
    const rd_kafka_topic_partition_t& one = list->elems[i];
    if (one.err == RD_KAFKA_RESP_ERR_NO_ERROR) continue;
    Event event = EventOf(one.err);
    event.topic = one.topic;
    event.partition = one.partition;
    return event;
  }
  return {};
}

Event EventOfError(rd_kafka_error_t* error) {
  if (error == nullptr) return {};
  Event event = EventOf(rd_kafka_error_code(error));
  event.message = rd_kafka_error_string(error);
  event.fatal = rd_kafka_error_is_fatal(error) != 0;
  rd_kafka_error_destroy(error);
  return event;
}

}  // namespace millrace::broker
