#include "base/config/edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/config/scalar.h"

namespace replicant::config {
namespace {

// Null if the key is absent.
const Node* FindNode(const Document& document, std::string_view key) {
  const Node* node = &document.root();
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    const Node::Entry* const entry = node->Find(key.substr(begin, end - begin));
    if (entry == nullptr) return nullptr;
    node = &entry->value;
    begin = end + 1;
  }
  return node;
}

// The value of a map's key, or a list's element by its number, and its place;
// null, with `*place` unchanged, if it is absent.
const Node* FindPart(const Node& node, const std::string& part,
                     std::optional<Place>* place) {
  if (const Node::Entry* const entry = node.Find(part)) {
    *place = entry->value_place();
    return &entry->value;
  }
  for (size_t i = 0; i < node.items.size(); ++i) {
    if (part != std::to_string(i)) continue;
    *place = node.items[i].place;
    return &node.items[i];
  }
  return nullptr;
}

// Whether a text key reads a text from the node.
bool HasText(const Node& node) {
  return node.kind == Node::Kind::kScalar ||
         (node.kind == Node::Kind::kNull && !node.text.empty());
}

std::optional<std::string> TextOf(const Node& node) {
  if (HasText(node)) return node.text;
  if (node.kind != Node::Kind::kList) return std::nullopt;
  std::vector<std::string> values;
  for (const Node& item : node.items) {
    values.push_back(TextOf(item).value_or(""));
  }
  return fmt::format("[{}]", fmt::join(values, ", "));
}

// The folder of the file that holds `place`, as the file's name was given;
// empty for an option.
std::filesystem::path FolderOf(Document& document, const Place& place) {
  // "configs/run.yaml:12:9", or "--set a.b=c"
  std::string where = document.problems().Where(place);
  if (where.starts_with("--set ")) return {};
  for (int i = 0; i < 2; ++i) where.resize(where.rfind(':'));
  return std::filesystem::path(where).parent_path();
}

std::string WithYaml(const std::string& resolved_yaml, std::string_view key,
                     const std::string& value) {
  const Document document = Document::FromText("resolved", resolved_yaml);
  const Node* const node = FindNode(document, key);
  REPLICANT_CHECK(node != nullptr, "{}", key);
  // a value stands at the end of its line
  size_t line = 0;
  for (int i = 1; i < node->place.line; ++i) {
    line = resolved_yaml.find('\n', line) + 1;
  }
  const size_t begin = line + static_cast<size_t>(node->place.column) - 1;
  return resolved_yaml.substr(0, begin) + value +
         resolved_yaml.substr(resolved_yaml.find('\n', begin));
}

}  // namespace

std::optional<std::string> ValueOf(const Document& document,
                                   std::string_view key) {
  const Node* const found = FindNode(document, key);
  return found == nullptr ? std::nullopt : TextOf(*found);
}

std::string WithPlace(const Document& document, const std::string& message) {
  const std::string_view path =
      std::string_view(message).substr(0, message.find(": "));
  constexpr std::string_view kOfKeys =
      "abcdefghijklmnopqrstuvwxyz0123456789_.[]";
  if (path.size() == message.size() ||
      path.find('.') == std::string_view::npos ||
      path.find_first_not_of(kOfKeys) != std::string_view::npos) {
    return message;
  }
  // "fields[0]" is element 0 of the list "fields"
  std::string key(path);
  std::erase(key, ']');
  std::ranges::replace(key, '[', '.');
  std::optional<Place> place;
  const Node* node = &document.root();
  for (size_t begin = 0; begin <= key.size() && node != nullptr;) {
    const size_t end = std::min(key.find('.', begin), key.size());
    node = FindPart(*node, key.substr(begin, end - begin), &place);
    begin = end + 1;
  }
  if (!place) return message;
  return document.problems().Where(*place) + ": " + message;
}

void MakeAbsolute(Document& document, std::string_view key) {
  const Node* const found = FindNode(document, key);
  if (found == nullptr || !HasText(*found) || found->text.empty()) return;
  const auto folder = FolderOf(document, found->place);
  // the node belongs to `document`, which may be changed
  const_cast<Node*>(found)->text =
      std::filesystem::absolute(folder / found->text).lexically_normal();
}

std::string WithValue(const std::string& resolved_yaml, std::string_view key,
                      std::string_view value) {
  return WithYaml(resolved_yaml, key, TextToYaml(value));
}

std::string WithValue(const std::string& resolved_yaml, std::string_view key,
                      int64_t value) {
  return WithYaml(resolved_yaml, key, std::to_string(value));
}

}  // namespace replicant::config
