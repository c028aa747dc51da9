#pragma once

#include <string>
#include <utility>

#include "core/config/document.h"
#include "core/config/manual.h"
#include "core/config/reader.h"
#include "core/config/record.h"

namespace replicant::config {

// A configuration in force.
template <typename T>
struct Loaded {
  T config;
  // every key with its value; what a run writes beside its logs
  std::string resolved_yaml;
};

// Reads a whole configuration with T::Read().
// Throws ConfigError that lists every problem (see Reader::Finish).
template <typename T>
Loaded<T> Load(Document document) {
  Reader reader(std::move(document));
  T config = T::Read(reader);
  reader.Finish();
  return {std::move(config), ResolvedYaml(reader.record())};
}

// The manual of the configuration that T::Read() reads.
template <typename T>
Manual Describe() {
  Reader reader = Reader::ForManual();
  // only what it declares is wanted
  static_cast<void>(T::Read(reader));
  return Manual(reader.record());
}

}  // namespace replicant::config
