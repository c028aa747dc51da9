#pragma once

#include <map>
#include <string>

#include "core/base/thread.h"

namespace replicant::fleet {

// Claims of processors, so that fleets of one machine do not bind their roles
// to the same ones. A claim binds nobody else; it ends with the object, or with
// its process.
//
// A claim of processor N is the socket "@NAME-N" in Linux's abstract namespace:
// it needs no file, holds between users, and the kernel ends it. Containers
// with network namespaces of their own do not see each other's claims.
//
// Thread-safety: one thread at a time.
class ProcessorClaims {
 public:
  explicit ProcessorClaims(std::string name = "replicant-processor")
      : name_(std::move(name)) {}
  ~ProcessorClaims() { KeepOnly({}); }
  ProcessorClaims(const ProcessorClaims&) = delete;
  ProcessorClaims& operator=(const ProcessorClaims&) = delete;

  // Claims those of `cpus` that no other object has claimed, and returns all
  // that this one has. Throws IoError if the system has no socket left.
  CpuSet Claim(const CpuSet& cpus);
  // Gives all but `cpus` back.
  void KeepOnly(const CpuSet& cpus);

 private:
  const std::string name_;
  std::map<int, int> sockets_;  // by processor
};

}  // namespace replicant::fleet
