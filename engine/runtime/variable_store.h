#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "base/tensor/tensor_view.h"
#include "engine/graph/graph.h"
#include "engine/kernels/backend.h"

namespace replicant::runtime {

// Counts the writes of a variable. Copies share one counter, so that several
// stores can hold one variable.
//
// Thread-safety: any thread.
class WriteCount {
 public:
  uint64_t value() const { return count_->load(std::memory_order_relaxed); }
  void Add() { count_->fetch_add(1, std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<uint64_t>> count_ =
      std::make_shared<std::atomic<uint64_t>>(0);
};

// The state of a training: every variable by name, in memory of one backend,
// row-major. Plans that are compiled against one store share its variables.
//
// Thread-safety: one thread at a time, and not while a plan that uses the
// store runs.
class VariableStore {
 public:
  struct Variable {
    graph::VariableSpec spec;
    std::shared_ptr<kernels::Buffer> buffer;
    // Counts the writes by Set() and by plans. A plan that keeps a packed copy
    // of the value packs it again when the count has changed. Code that writes
    // into the buffer directly must add to it.
    WriteCount version = {};
  };

  // First values are drawn from RandomStream(seed, "variable/<name>"). The
  // backend must outlive the store.
  VariableStore(kernels::Backend& backend, uint64_t seed);

  // Adds the variables of `graph` that the store lacks, and gives them their
  // first values. Throws ShapeError, adding none, if one exists with another
  // dtype or shape.
  void Declare(const graph::Graph& graph);

  // Adds a variable of another store on the same kind of backend: both have its
  // memory from then on. Throws InvalidArgument if the name is taken.
  void Share(const Variable& variable);

  bool Has(std::string_view name) const;
  // Throws InvalidArgument for an unknown name.
  Variable& at(std::string_view name);
  const Variable& at(std::string_view name) const;
  // Sorted by name.
  const std::map<std::string, Variable, std::less<>>& variables() const {
    return variables_;
  }
  size_t size_bytes() const;

  // A copy of the value.
  HostTensor Get(std::string_view name) const;
  // Throws InvalidArgument for an unknown name, ShapeError for another dtype
  // or shape; the value is unchanged then.
  void Set(std::string_view name, TensorView value);

  kernels::Backend& backend() const { return backend_; }

 private:
  kernels::Backend& backend_;
  uint64_t seed_;
  std::unique_ptr<kernels::Stream> stream_;
  std::map<std::string, Variable, std::less<>> variables_;
};

}  // namespace replicant::runtime
