#pragma once

#include <memory>

#include "engine/pjrt/plugin.h"

namespace replicant::pjrt {

// Returns an object to its plugin. Defined where Handles are made.
template <typename T>
struct Destroyer {
  void operator()(T* object) const;

  const Plugin* plugin = nullptr;
};

// Owns an object of a plugin, which outlives it.
template <typename T>
using Handle = std::unique_ptr<T, Destroyer<T>>;

}  // namespace replicant::pjrt
