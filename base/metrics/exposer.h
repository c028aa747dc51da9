#pragma once

#include <memory>
#include <string>

#include "base/metrics/registry.h"

namespace replicant::metrics {

struct ExposerOptions {
  // "<IPv4 address>:<port>"; port 0 takes a free one. (Debian's server is built
  // without IPv6.) Every host that reaches the address can read the metrics.
  std::string address = "127.0.0.1:0";
};

// Serves a registry to Prometheus: GET /metrics over plain HTTP, on two
// separate threads. A destroyed registry is served as empty.
//
// The HTTP server inside ignores SIGPIPE for the whole process.
//
// Thread-safety: one thread at a time; the registry may be used meanwhile.
class Exposer {
 public:
  // Listens. Throws InvalidArgument for an address of another form, and
  // CommError if it cannot listen there, for example because the port is in
  // use.
  Exposer(const ExposerOptions& options, const Registry& registry);
  ~Exposer();
  Exposer(const Exposer&) = delete;
  Exposer& operator=(const Exposer&) = delete;

  int port() const { return port_; }
  // URL for Prometheus or curl: "http://127.0.0.1:9464/metrics".
  std::string Url() const;

 private:
  class Server;
  std::unique_ptr<Server> server_;
  std::string host_;
  int port_ = 0;
};

}  // namespace replicant::metrics
