#include "core/config/record.h"

#include <fmt/format.h>

#include "core/config/scalar.h"

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

// A node without lines of its own: a scalar, null, {} or [].
bool IsInline(const Node& node) {
  return node.items.empty() && node.entries.empty();
}

std::string InlineYaml(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kList:
      return "[]";
    case Node::Kind::kMap:
      return "{}";
    case Node::Kind::kScalar:
      break;
  }
  // a plain scalar that was folded from several lines is text
  const bool is_plain =
      !node.is_quoted && node.text.find('\n') == std::string::npos;
  return is_plain ? node.text : QuotedToYaml(node.text);
}

void AddNode(const Node& node, size_t indent, std::vector<std::string>* lines) {
  const std::string blanks(indent, ' ');
  if (IsInline(node)) {
    lines->push_back(blanks + InlineYaml(node));
    return;
  }
  for (const Node::Entry& entry : node.entries) {
    const std::string head = blanks + TextToYaml(entry.key) + ":";
    if (IsInline(entry.value)) {
      lines->push_back(head + " " + InlineYaml(entry.value));
    } else {
      lines->push_back(head);
      AddNode(entry.value, indent + 2, lines);
    }
  }
  for (const Node& item : node.items) {
    // the first line of an element carries its dash
    const size_t first = lines->size();
    AddNode(item, indent + 2, lines);
    (*lines)[first][indent] = '-';
  }
}

}  // namespace

std::vector<std::string> EntryToYaml(const Node::Entry& entry) {
  Node map;
  map.kind = Node::Kind::kMap;
  map.entries.push_back(entry);
  std::vector<std::string> lines;
  AddNode(map, 0, &lines);
  return lines;
}

const std::string& KeyOf(const SectionRecord::Item& item) {
  if (const auto* field = std::get_if<FieldRecord>(&item)) return field->key;
  return std::get<SectionPointer>(item)->key;
}

std::string ResolvedYaml(const SectionRecord& root) {
  std::vector<std::string> lines;
  AddLines(root, 0, &lines);
  for (const ForeignRecord& foreign : root.foreign) {
    lines.insert(lines.end(), foreign.yaml.begin(), foreign.yaml.end());
  }
  if (lines.empty()) return "{}\n";
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace replicant::config
