// Settings of the direct client, from properties of librdkafka.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "broker/client.h"
#include "broker/wire/messages.h"

namespace millrace::broker::direct {

struct Endpoint {
  std::string host;
  std::uint16_t port = 9092;
};

// Position of a partition without a usable offset.
enum class Reset { kEarliest, kLatest, kError };

struct TlsSettings {
  bool is_on = false;
  // True when the certificate of the broker is verified, and that it names the broker.
  bool verifies = true;
  bool checks_name = true;
  // Path of a file or a folder; empty: the authorities of the system.
  std::string ca_location;
  std::string ca_pem;
  std::string certificate_location;
  std::string certificate_pem;
  std::string key_location;
  std::string key_pem;
  std::string key_password;
  // Path of a PKCS#12 file with certificate, chain and key.
  std::string keystore_location;
  std::string keystore_password;
};

struct SaslSettings {
  bool is_on = false;
  std::string mechanism;
  std::string user;
  std::string password;
};

struct Settings {
  std::vector<Endpoint> bootstrap;
  std::string client_id;
  TlsSettings tls;
  SaslSettings sasl;
  bool keeps_alive = false;
  wire::FetchLimits fetch{500, 1, 52'428'800, 1'048'576};
  bool committed_only = true;
  bool reports_ends = false;
  Reset reset = Reset::kLatest;
  // Size of the greatest message; the limits of a fetch are not below it.
  std::int32_t message_bytes_max = 1'000'000;
  // Limit of a response, and of the decompressed records of a batch.
  std::int32_t response_bytes_max = 100'000'000;
  // Bytes of responses that wait for their reader, above which no more is requested.
  std::size_t queue_bytes_max = 65536 * std::size_t{1024};
  int request_timeout_ms = 60'000;
  int connect_timeout_ms = 30'000;
  int reconnect_ms = 100;
  int reconnect_max_ms = 10'000;
  // Age of the metadata after which it is read again.
  int metadata_ms = 300'000;
};

// Reads the properties that the direct client knows and ignores the others, which its caller has
// checked. False, with `error` set, for a value that it cannot use.
bool ReadSettings(const Properties& properties, Settings* out, std::string* error);

}  // namespace millrace::broker::direct
