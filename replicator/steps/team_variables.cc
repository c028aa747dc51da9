#include "replicator/steps/team_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/tensor/tensor_view.h"

namespace replicant::replicator {

void TeamVariables::Share(const graph::Graph& graph,
                          const SharedVariables& variables) {
  first().Declare(graph);
  for (size_t i = 1; i < stores_.size(); ++i) {
    runtime::VariableStore& store = *stores_[i];
    for (const std::string& name : variables.shared) {
      if (!store.Has(name)) store.Share(first().at(name));
    }
    const auto check = [&](const std::set<std::string>& names, bool is_shared) {
      for (const std::string& name : names) {
        if (!store.Has(name) || IsShared(name, store) == is_shared) continue;
        throw InvalidArgument(fmt::format(
            "'{}' is updated by all replicas of a process together in one step "
            "and by each replica alone in another; hint: build the step with "
            "its optimizer first",
            name));
      }
    };
    check(variables.shared, /*is_shared=*/true);
    check(variables.own, /*is_shared=*/false);
  }
}

void TeamVariables::AddSums(const std::set<std::string>& names) {
  sums_.insert(names.begin(), names.end());
}

void TeamVariables::NoteVersions() {
  for (const auto& [name, variable] : first().variables()) {
    versions_[name] = variable.version.value();
  }
}

bool TeamVariables::HaveChanged() const {
  return std::ranges::any_of(
      stores_[0]->variables(),
      [this](const auto& entry) { return HasChanged(entry.second); });
}

bool TeamVariables::HasChanged(
    const runtime::VariableStore::Variable& variable) const {
  const auto noted = versions_.find(variable.spec.name);
  // a new variable is the same everywhere
  const uint64_t version = noted == versions_.end() ? 0 : noted->second;
  return variable.version.value() != version;
}

std::set<std::string> TeamVariables::FindKept(Processes& processes) const {
  // they may have been written in the middle of an update
  std::set<std::string> kept = sums_;
  std::vector<std::string> own;
  std::string has_changed;  // a letter for each of `own`
  for (const auto& [name, variable] : stores_[0]->variables()) {
    if (variable.spec.is_trainable || sums_.contains(name) ||
        variable.spec.agreement != graph::ReplicaAgreement::kPerReplica) {
      continue;
    }
    own.push_back(name);
    has_changed += HasChanged(variable) ? 'y' : 'n';
  }
  // the first process decides, so that all make the same calls
  if (!own.empty()) has_changed = processes.Broadcast(has_changed);
  for (size_t i = 0; i < own.size(); ++i) {
    if (has_changed[i] == 'n') kept.insert(own[i]);
  }
  return kept;
}

void TeamVariables::Spread(Processes& processes) {
  const std::set<std::string> kept = FindKept(processes);
  for (const auto& [name, ignored] : first().variables()) {
    if (kept.contains(name)) continue;
    runtime::VariableStore::Variable& own = first().at(name);
    std::optional<HostTensor> staging;
    if (!is_host_memory_) staging = first().Get(name);
    const MutableTensorView view =
        staging ? staging->mutable_view()
                : MutableTensorView(own.spec.dtype, own.spec.shape,
                                    own.buffer->data());
    if (processes.size() > 1) {
      processes.Broadcast(view);
      if (staging) {
        first().Set(name, view);
      } else {
        own.version.Add();
      }
    }
    for (size_t i = 1; i < stores_.size(); ++i) {
      if (!IsShared(name, *stores_[i])) stores_[i]->Set(name, view);
    }
  }
}

bool TeamVariables::IsShared(const std::string& name,
                             const runtime::VariableStore& store) const {
  return store.at(name).buffer == stores_[0]->at(name).buffer;
}

}  // namespace replicant::replicator
