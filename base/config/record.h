#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace replicant::config {

// One key with a value, as a Read() function declared it.
struct FieldRecord {
  std::string key;
  std::string type;           // "integer", "list of number", "text or null"
  std::string allowed;        // "[1, 64]"; empty if every value is
  std::string default_yaml;   // "32.0"
  std::string resolved_yaml;  // the value after loading
  std::string doc;
};

// The declarations of one section, in the order of Read(). The manual and the
// resolved configuration are written from it.
struct SectionRecord {
  enum class Form {
    kSection,  // keys and values
    kList,  // its sections are elements; in a manual, one that stands for all
    kMap,   // the same, each with a name
  };
  using Item = std::variant<FieldRecord, std::unique_ptr<SectionRecord>>;

  Form form = Form::kSection;
  std::string key;   // "rate_limiter"; for an element its index or name
  std::string path;  // "replay.rate_limiter"; empty for the root
  std::string doc;
  std::string allowed;  // kList, kMap: number of elements; empty if any
  std::vector<Item> items;
};

// The key of a field or of a section.
const std::string& KeyOf(const SectionRecord::Item& item);

// The values in force as YAML: every key, in the order of the Read() functions.
// Reading it again gives the same values.
std::string ResolvedYaml(const SectionRecord& root);

}  // namespace replicant::config
