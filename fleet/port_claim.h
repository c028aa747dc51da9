#pragma once

#include <string>

namespace replicant::fleet {

// Whether an endpoint leaves the choice of its port to a fleet:
// "tcp://10.0.0.2:*".
bool IsOfAnyPort(const std::string& endpoint);

// A free TCP port, kept for the processes of a run as long as the object lives.
//
// A socket that is bound and does not listen holds the port: the system gives
// it to nobody that asks for any port, and a process of this host may still
// listen there, now and after each restart, because both sockets allow the
// reuse of the address (SO_REUSEADDR, which ZeroMQ sets).
//
// Thread-safety: one thread at a time.
class PortClaim {
 public:
  // Chooses a port of the address of `endpoint` (IsOfAnyPort() checked). Throws
  // ConfigError for an address that is not a number or not one of this host.
  explicit PortClaim(const std::string& endpoint);
  ~PortClaim();
  PortClaim(PortClaim&& other) noexcept;
  PortClaim& operator=(PortClaim&&) = delete;

  // With its port: "tcp://10.0.0.2:41234".
  const std::string& endpoint() const { return endpoint_; }

 private:
  std::string endpoint_;
  int fd_ = -1;
};

}  // namespace replicant::fleet
