#pragma once

#include <memory>
#include <string>

#include "core/metrics/registry.h"

namespace replicant::metrics {

struct ExposerOptions {
  // "<IPv4 address>:<port>"; port 0 takes a free one. (Debian's server is built
  // without IPv6.) The metrics are for everybody who can connect: an address
  // other than loopback is a decision of whoever writes the config.
  std::string address = "127.0.0.1:0";
};

// Serves a registry to Prometheus: GET /metrics, over plain HTTP, from two
// threads of its own. A registry that has gone is served as empty.
//
// The HTTP server inside ignores SIGPIPE for the whole process.
//
// Thread-safety: one thread at a time; the registry may be used meanwhile.
class Exposer {
 public:
  // Listens. Throws InvalidArgument for an address of another form, and
  // CommError if it cannot be listened on, for example because another process
  // does.
  Exposer(const ExposerOptions& options, const Registry& registry);
  ~Exposer();
  Exposer(const Exposer&) = delete;
  Exposer& operator=(const Exposer&) = delete;

  int port() const { return port_; }
  // What to give to Prometheus or curl: "http://127.0.0.1:9464/metrics".
  std::string Url() const;

 private:
  class Server;
  std::unique_ptr<Server> server_;
  std::string host_;
  int port_ = 0;
};

}  // namespace replicant::metrics
