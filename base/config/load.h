#pragma once

#include <string>
#include <utility>

#include "base/config/document.h"
#include "base/config/manual.h"
#include "base/config/reader.h"
#include "base/config/record.h"

namespace replicant::config {

// A loaded configuration.
template <typename T>
struct Loaded {
  T config;
  // every key with its value; a run writes it next to its logs
  std::string resolved_yaml;
  // what was read, for WithPlace() (base/config/edit.h)
  Document document;
};

// Reads a whole configuration by `read`, a T(Reader&). Throws ConfigError that
// lists every problem (see Reader::Finish).
template <typename T, typename Read>
Loaded<T> LoadBy(Document document, const Read& read) {
  Reader reader(document);
  T config = read(reader);
  reader.Finish();
  return {std::move(config), ResolvedYaml(reader.record()),
          std::move(document)};
}

// Reads a whole configuration by T::Read().
template <typename T>
Loaded<T> Load(Document document) {
  return LoadBy<T>(std::move(document),
                   [](Reader& reader) { return T::Read(reader); });
}

// The manual of the configuration that `read`, a T(Reader&), reads.
template <typename Read>
Manual DescribeBy(const Read& read) {
  Reader reader = Reader::ForManual();
  // only the declarations are wanted
  static_cast<void>(read(reader));
  return Manual(reader.record());
}

// The manual of the configuration that T::Read() reads.
template <typename T>
Manual Describe() {
  return DescribeBy([](Reader& reader) { return T::Read(reader); });
}

}  // namespace replicant::config
