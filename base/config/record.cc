#include "base/config/record.h"

#include <fmt/format.h>

#include "base/config/scalar.h"

namespace replicant::config {
namespace {

using Form = SectionRecord::Form;
using SectionPointer = std::unique_ptr<SectionRecord>;

// Appends the lines of a section's items, each behind `indent` blanks.
void AddLines(const SectionRecord& section, size_t indent,
              std::vector<std::string>* lines) {
  const std::string blanks(indent, ' ');
  for (const SectionRecord::Item& item : section.items) {
    if (const auto* field = std::get_if<FieldRecord>(&item)) {
      lines->push_back(blanks + field->key + ": " + field->resolved_yaml);
      continue;
    }
    const SectionRecord& child = *std::get<SectionPointer>(item);
    const bool is_element = section.form == Form::kList;
    const std::string head =
        blanks + (is_element ? "-" : TextToYaml(child.key) + ":");
    if (child.items.empty()) {
      lines->push_back(head + (child.form == Form::kList ? " []" : " {}"));
      continue;
    }
    const size_t first = lines->size();
    if (!is_element) lines->push_back(head);
    AddLines(child, indent + 2, lines);
    // the first line of a list element carries its dash
    if (is_element) (*lines)[first][indent] = '-';
  }
}

}  // namespace

const std::string& KeyOf(const SectionRecord::Item& item) {
  if (const auto* field = std::get_if<FieldRecord>(&item)) return field->key;
  return std::get<SectionPointer>(item)->key;
}

std::string ResolvedYaml(const SectionRecord& root) {
  std::vector<std::string> lines;
  AddLines(root, 0, &lines);
  if (lines.empty()) return "{}\n";
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace replicant::config
