#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/runtime/variable_store.h"
#include "replicator/steps/processes.h"
#include "replicator/steps/shared_updates.h"

namespace replicant::replicator {

// The variables of a process's replicas, a store for each. Those that the
// replicas update together share the first store's memory. Steps keep all
// stores equal; a value that anything else has written into the first one goes
// to all others, of all processes, by Spread().
//
// Thread-safety: one thread at a time, and none while a plan runs.
class TeamVariables {
 public:
  // `stores` outlive this.
  TeamVariables(std::vector<runtime::VariableStore*> stores,
                bool is_host_memory)
      : stores_(std::move(stores)), is_host_memory_(is_host_memory) {}

  // Gives all replicas the first one's memory for `variables.shared`, before a
  // plan of `graph` allocates it. Throws InvalidArgument for a variable that an
  // earlier step shares and this one does not, or the other way round.
  void Share(const graph::Graph& graph, const SharedVariables& variables);
  // Sums of gradients, by name, differ between replicas and are not spread.
  void AddSums(const std::set<std::string>& names);

  // Notes that only steps have written variables so far.
  void NoteVersions();
  // Whether a variable of the first store was written since NoteVersions().
  bool HaveChanged() const;
  // Copies the values of the first process's first store to all stores; those
  // of a kPerReplica variable only if that one was written itself. All
  // processes call it. Throws CommError.
  void Spread(Processes& processes);

 private:
  runtime::VariableStore& first() { return *stores_[0]; }
  // Whether a variable of the first store was written since NoteVersions().
  bool HasChanged(const runtime::VariableStore::Variable& variable) const;
  // The variables that Spread() leaves as they are.
  std::set<std::string> FindKept(Processes& processes) const;
  // Whether a variable of `store` lies in the first one's memory.
  bool IsShared(const std::string& name,
                const runtime::VariableStore& store) const;

  const std::vector<runtime::VariableStore*> stores_;
  const bool is_host_memory_;
  std::set<std::string> sums_;
  std::map<std::string, uint64_t> versions_;  // of the first store, noted
};

}  // namespace replicant::replicator
