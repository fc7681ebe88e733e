// Conversions between topic partitions and librdkafka's lists of them.
#pragma once

#include <vector>

#include "broker/client.h"
#include "broker/library.h"

namespace millrace::broker {

using List = rd_kafka_topic_partition_list_t;

// The caller destroys the list.
List* ListOf(const std::vector<Place>& places);
std::vector<Place> PlacesOf(const List* list);
// First error among the entries of a list.
Event FirstError(const List* list);
// Converts and destroys an error, which may be null.
Event EventOfError(rd_kafka_error_t* error);

}  // namespace millrace::broker
