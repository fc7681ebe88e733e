// Partitions as librdkafka lists them.
#pragma once

#include <vector>

#include "broker/client.h"
#include "broker/library.h"

namespace millrace::broker {

using List = rd_kafka_topic_partition_list_t;

// To be destroyed by the caller.
List* ListOf(const std::vector<Place>& places);
std::vector<Place> PlacesOf(const List* list);
// The first error among the entries of a list.
Event FirstError(const List* list);
// Takes over the error, which may be null.
Event Settle(rd_kafka_error_t* error);

}  // namespace millrace::broker
