#include "base/config/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/config/problems.h"
#include "base/nearest.h"

namespace replicant::config {
namespace {

bool IsKey(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool IsElementName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string JoinYaml(const std::vector<Scalar>& values) {
  std::string text;
  for (const Scalar& value : values) {
    text += (text.empty() ? "" : ", ") + ToYaml(value);
  }
  return text;
}

// "3 elements" as a problem: "has 3 elements; the allowed number is [1, 2]".
std::string CountProblem(size_t count, const Range<int64_t>& size) {
  return fmt::format("has {} elements; the allowed number is {}", count,
                     ToString(size));
}

// "learner.batch_size: 32" as a file has it: "learner: {batch_size: 32}".
std::string Nested(std::string_view key, const std::string& value) {
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) return fmt::format("{}: {}", key, value);
  return fmt::format("{}: {{{}}}", key.substr(0, dot),
                     Nested(key.substr(dot + 1), value));
}

// How to write a key with dots; "; did you mean 'level'?", or the list of the
// keys here.
std::string KeyHint(const Node::Entry& entry,
                    const std::vector<std::string>& known) {
  const std::string& key = entry.key;
  const size_t dot = key.find('.');
  if (dot != std::string::npos &&
      std::ranges::find(known, key.substr(0, dot)) != known.end()) {
    const bool is_scalar = entry.value.kind == Node::Kind::kScalar;
    return "; hint: write " +
           Nested(Printable(key),
                  is_scalar ? Printable(entry.value.text) : "...");
  }
  if (const std::string near = NearestName(key, known); !near.empty()) {
    return "; did you mean '" + near + "'?";
  }
  return fmt::format("; the keys here are {}", fmt::join(known, ", "));
}

}  // namespace

struct Reader::State {
  // A section whose keys Finish() compares with the declared ones.
  struct Visit {
    const SectionRecord* record;
    const Node* node;
  };

  Document document;
  bool is_manual = false;
  SectionRecord root;
  std::vector<Visit> visits;
};

Reader::Reader(Document document)
    : owned_(std::make_unique<State>()),
      state_(owned_.get()),
      record_(&state_->root) {
  state_->document = std::move(document);
  node_ = &state_->document.root();
  place_ = node_->place;
  state_->visits.push_back({record_, node_});
}

Reader::Reader(State* state, SectionRecord* record, const Node* node,
               Place place)
    : state_(state), record_(record), node_(node), place_(place) {
  if (node != nullptr) state->visits.push_back({record, node});
}

Reader::Reader(Reader&&) noexcept = default;
Reader::~Reader() = default;

Reader Reader::ForManual() {
  Reader reader{Document()};
  reader.state_->is_manual = true;
  return reader;
}

std::string Reader::PathOf(std::string_view key) const {
  if (record_->path.empty()) return std::string(key);
  return fmt::format("{}.{}", record_->path, key);
}

const Node::Entry* Reader::Find(std::string_view key) const {
  return node_ == nullptr ? nullptr : node_->Find(key);
}

bool Reader::Has(std::string_view key) const { return Find(key) != nullptr; }

void Reader::CheckNewKey(std::string_view key) const {
  REPLICANT_CHECK(IsKey(key), "key {} of section {}", Quote(key),
                  Quote(record_->path));
  for (const SectionRecord::Item& item : record_->items) {
    REPLICANT_CHECK(KeyOf(item) != key, "{} is declared twice", PathOf(key));
  }
}

bool Reader::ReadField(const Declaration& declaration,
                       std::vector<Scalar>* values) {
  CheckNewKey(declaration.key);
  for (const Scalar& value : *values) {
    REPLICANT_CHECK(declaration.type.Allows(value),
                    "default {} of {} is not allowed: {}", ToYaml(value),
                    PathOf(declaration.key), declaration.type.Allowed());
  }
  const auto count = static_cast<int64_t>(values->size());
  REPLICANT_CHECK(declaration.length.Contains(count),
                  "default of {} has {} elements", PathOf(declaration.key),
                  count);

  const auto to_yaml = [&declaration](const std::vector<Scalar>& scalars) {
    if (declaration.form == Form::kList) return "[" + JoinYaml(scalars) + "]";
    return scalars.empty() ? std::string("null") : ToYaml(scalars.front());
  };
  FieldRecord record;
  record.key = declaration.key;
  record.type = declaration.type.Name();
  record.allowed = declaration.type.Allowed();
  record.doc = declaration.doc;
  record.default_yaml = to_yaml(*values);
  if (declaration.form == Form::kOptional) record.type += " or null";
  if (declaration.form == Form::kList) {
    record.type = "list of " + record.type;
    if (const std::string length = ToString(declaration.length);
        !length.empty()) {
      record.allowed += (record.allowed.empty() ? "" : "; ") +
                        ("number of elements " + length);
    }
  }
  const bool is_read = ParseField(declaration, values);
  record.resolved_yaml = is_read ? to_yaml(*values) : record.default_yaml;
  record_->items.emplace_back(std::move(record));
  return is_read;
}

bool Reader::ParseField(const Declaration& declaration,
                        std::vector<Scalar>* values) {
  const Node::Entry* entry = Find(declaration.key);
  if (entry == nullptr) return false;
  const Node& node = entry->value;
  const std::string path = PathOf(declaration.key);
  const Place place = entry->value_place();

  if (declaration.form == Form::kOptional && node.kind == Node::Kind::kNull) {
    values->clear();
    return true;
  }
  std::vector<Scalar> parsed;
  if (declaration.form != Form::kList) {
    if (!ParseElement(node, place, path, declaration, &parsed)) return false;
    *values = std::move(parsed);
    return true;
  }

  if (node.kind != Node::Kind::kList) {
    std::string hint;
    if (node.kind == Node::Kind::kMap) {
      hint = "; hint: --set reaches only elements of a list that is in a file";
    }
    if (node.kind == Node::Kind::kScalar) {
      hint = "; hint: write [" + Printable(node.text) + "]";
    }
    state_->document.problems().Add(
        place, path,
        fmt::format("is {}; expected a list ({}){}", DescribeNode(node),
                    declaration.doc, hint));
    return false;
  }
  if (!declaration.length.Contains(static_cast<int64_t>(node.items.size()))) {
    state_->document.problems().Add(
        place, path, CountProblem(node.items.size(), declaration.length));
    return false;
  }
  bool is_good = true;
  for (size_t i = 0; i < node.items.size(); ++i) {
    is_good &=
        ParseElement(node.items[i], node.items[i].place,
                     fmt::format("{}.{}", path, i), declaration, &parsed);
  }
  if (is_good) *values = std::move(parsed);
  return is_good;
}

bool Reader::ParseElement(const Node& node, const Place& place,
                          const std::string& path,
                          const Declaration& declaration,
                          std::vector<Scalar>* values) {
  ParsedScalar parsed = ParseScalar(node, declaration.type);
  if (!parsed.value) {
    // the doc tells the unit and the meaning of the value
    state_->document.problems().Add(
        place, path,
        fmt::format("{} ({}){}", parsed.problem, declaration.doc, parsed.hint));
    return false;
  }
  values->push_back(std::move(*parsed.value));
  return true;
}

SectionRecord* Reader::AddSection(std::string_view key,
                                  SectionRecord::Form form,
                                  std::string_view doc) {
  auto child = std::make_unique<SectionRecord>();
  child->form = form;
  child->key = key;
  child->path = PathOf(key);
  child->doc = doc;
  SectionRecord* pointer = child.get();
  record_->items.emplace_back(std::move(child));
  return pointer;
}

Reader Reader::Section(std::string_view key, std::string_view doc) {
  CheckNewKey(key);
  SectionRecord* record = AddSection(key, SectionRecord::Form::kSection, doc);
  const Node::Entry* entry = Find(key);
  if (entry == nullptr) return {state_, record, nullptr, place_};
  if (entry->value.kind == Node::Kind::kMap) {
    return {state_, record, &entry->value, entry->key_place};
  }
  const bool is_null = entry->value.kind == Node::Kind::kNull;
  state_->document.problems().Add(
      entry->value_place(), record->path,
      is_null ? "has no keys; hint: leave it out for its defaults"
              : "is " + DescribeNode(entry->value) +
                    "; expected a section of keys and values");
  return {state_, record, nullptr, entry->key_place};
}

std::vector<std::pair<std::string, Reader>> Reader::Elements(
    std::string_view key, SectionRecord::Form form, Range<int64_t> size,
    std::string_view doc) {
  CheckNewKey(key);
  SectionRecord* record = AddSection(key, form, doc);
  record->allowed = ToString(size);
  const bool is_list = form == SectionRecord::Form::kList;
  Problems& problems = state_->document.problems();
  std::vector<std::pair<std::string, Reader>> elements;
  Reader parent(state_, record, nullptr, place_);
  const auto add = [&](const std::string& name, const Node* node,
                       const Place& place) {
    SectionRecord* child =
        parent.AddSection(name, SectionRecord::Form::kSection, "");
    if (node != nullptr && node->kind != Node::Kind::kMap) {
      problems.Add(place, child->path,
                   "is " + DescribeNode(*node) +
                       "; expected a section of keys and values");
      node = nullptr;
    }
    elements.emplace_back(name, Reader(state_, child, node, place));
  };

  if (state_->is_manual) {
    add(is_list ? "N" : "NAME", nullptr, place_);
    return elements;
  }
  const Node::Entry* entry = Find(key);
  const Node empty;
  const Node& node = entry == nullptr ? empty : entry->value;
  const Place place = entry == nullptr ? place_ : entry->value_place();
  const auto wanted = is_list ? Node::Kind::kList : Node::Kind::kMap;
  if (entry != nullptr && node.kind != wanted) {
    problems.Add(
        place, record->path,
        fmt::format("is {}; expected a {} of sections ({})", DescribeNode(node),
                    is_list ? "list" : "map", doc));
    return elements;
  }
  const size_t count = is_list ? node.items.size() : node.entries.size();
  if (!size.Contains(static_cast<int64_t>(count))) {
    problems.Add(place, record->path, CountProblem(count, size));
    return elements;
  }
  for (size_t i = 0; i < node.items.size(); ++i) {
    add(std::to_string(i), &node.items[i], node.items[i].place);
  }
  for (const Node::Entry& named : node.entries) {
    if (!IsElementName(named.key)) {
      problems.Add(named.key_place, PathOf(key),
                   Quote(named.key) +
                       " is not a name; allowed: letters, digits, '_' and '-'");
      continue;
    }
    add(named.key, &named.value, named.value_place());
  }
  return elements;
}

void Reader::Error(std::string_view key, std::string message) {
  Problems& problems = state_->document.problems();
  std::string path = PathOf(key);
  if (problems.HasKey(path)) return;

  // the place of the key, or of the innermost section around it in a file
  Place place = place_;
  const Node* node = node_;
  while (node != nullptr && !key.empty()) {
    const size_t dot = key.find('.');
    const Node::Entry* entry = node->Find(key.substr(0, dot));
    if (entry == nullptr) break;
    place = entry->value_place();
    node = &entry->value;
    key = dot == std::string_view::npos ? "" : key.substr(dot + 1);
  }
  problems.Add(place, std::move(path), std::move(message));
}

void Reader::Finish() {
  REPLICANT_CHECK(owned_ != nullptr, "Finish() of section {}", record_->path);
  Problems& problems = state_->document.problems();
  for (const State::Visit& visit : state_->visits) {
    std::vector<std::string> known;
    for (const SectionRecord::Item& item : visit.record->items) {
      known.push_back(KeyOf(item));
    }
    const bool is_root = visit.record == &state_->root;
    for (const Node::Entry& entry : visit.node->entries) {
      if (std::find(known.begin(), known.end(), entry.key) != known.end()) {
        continue;
      }
      // at the root a file may also hold 'base'
      std::vector<std::string> candidates = known;
      if (is_root) candidates.emplace_back("base");
      const std::string prefix = is_root ? "" : visit.record->path + ".";
      const std::string path = prefix + Printable(entry.key);
      // a rule may say more about a key that is gone
      if (problems.HasKey(path)) continue;
      problems.Add(entry.key_place, path,
                   "unknown key" + KeyHint(entry, candidates));
    }
  }
  problems.ThrowIfAny();
}

}  // namespace replicant::config
