#pragma once

#include <map>
#include <string>

#include "base/thread.h"

namespace replicant::fleet {

// Claims of processors, so that fleets on one machine do not bind their roles
// to the same ones. Claims are advisory: other programs may use the processors.
// A claim ends with the object or its process.
//
// A claim of processor N is the socket "@NAME-N" in Linux's abstract namespace:
// it needs no file, works across users, and the kernel removes it. Containers
// with separate network namespaces do not see each other's claims.
//
// Thread-safety: one thread at a time.
class ProcessorClaims {
 public:
  explicit ProcessorClaims(std::string name = "replicant-processor")
      : name_(std::move(name)) {}
  ~ProcessorClaims() { KeepOnly({}); }
  ProcessorClaims(const ProcessorClaims&) = delete;
  ProcessorClaims& operator=(const ProcessorClaims&) = delete;

  // Claims the processors in `cpus` that no other object has claimed, and
  // returns all claims of this object. Throws IoError if no socket can be made.
  CpuSet Claim(const CpuSet& cpus);
  // Releases all claims except `cpus`.
  void KeepOnly(const CpuSet& cpus);

 private:
  const std::string name_;
  std::map<int, int> sockets_;  // by processor
};

}  // namespace replicant::fleet
