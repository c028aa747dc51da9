#pragma once

#include <string>

namespace replicant::fleet {

// Whether the fleet chooses the port of an endpoint:
// "tcp://10.0.0.2:*".
bool IsOfAnyPort(const std::string& endpoint);

// A free TCP port, reserved for the processes of a run while this object lives.
//
// A bound socket that does not listen reserves the port: the system gives it to
// no process that asks for any port. Processes of this host may still listen on
// it, even after a restart, because both sockets allow reuse of the address
// (SO_REUSEADDR, which ZeroMQ sets).
//
// Thread-safety: one thread at a time.
class PortClaim {
 public:
  // Chooses a port of the address of `endpoint` (IsOfAnyPort() checked). Throws
  // ConfigError if the address is not numeric or not one of this host.
  explicit PortClaim(const std::string& endpoint);
  ~PortClaim();
  PortClaim(PortClaim&& other) noexcept;
  PortClaim& operator=(PortClaim&&) = delete;

  // The endpoint with its port: "tcp://10.0.0.2:41234".
  const std::string& endpoint() const { return endpoint_; }

 private:
  std::string endpoint_;
  int fd_ = -1;
};

}  // namespace replicant::fleet
