#include <algorithm>
#include <map>
#include <memory>

#include "grammar/gbnf.h"
#include "grammar/grammar.h"
#include "grammar/json_rules.h"
#include "grammar/schema_keys.h"
#include "grammar/schema_shape.h"
#include "grammar/schema_strings.h"

namespace fathom {
namespace {

constexpr int64_t kSchemaWorkMax = 20'000'000;  // members times schemas, over all values
constexpr size_t kSchemaRulesMax = 10'000;

using Expression = std::optional<std::string>;  // none: no value is right

class SchemaWriter {
 public:
  SchemaWriter(const SchemaJson& document, std::string_view prefix) : document_(document), rules_(prefix) {}

  Result<std::string> write(std::string_view prefix) {
    FATHOM_ASSIGN(const Expression root, rule_of({{&document_, "#"}}));
    if (!root) return Error::invalid("schema {}: no value satisfies the schema", nothing_at_);
    rules_.define(prefix, *root);
    return rules_.take_text();
  }

 private:
  using Key = std::vector<std::pair<const SchemaJson*, int>>;
  struct Known {
    std::string name;
    bool open = true;      // still being written
    bool possible = true;  // some value is right
    bool named = false;    // another rule names it, written while this one was open
    int containers = 0;    // around it, while it is open
  };

  static Key key_of(const SchemaSet& set) {
    Key key;
    for (const SchemaPlace& place : set)
      key.push_back({place.schema, (place.chosen_any ? 1 : 0) + (place.chosen_one ? 2 : 0)});
    std::sort(key.begin(), key.end());
    key.erase(std::unique(key.begin(), key.end()), key.end());
    return key;
  }

  Expression nothing(const std::string& path) {
    nothing_at_ = path;
    return std::nullopt;
  }

  /// The name of the rule for values that satisfy all of `set`.
  Result<Expression> rule_of(const SchemaSet& set) {
    const bool anything = std::all_of(set.begin(), set.end(), [](const SchemaPlace& place) {
      const SchemaJson& schema = *place.schema;
      return schema.is_boolean() ? schema.get<bool>() : schema.is_object() && schema.empty();
    });
    if (anything) return Expression(rules_.use(JsonRules::kValue));
    const std::string& path = set.front().path;
    const auto [entry, fresh] = known_.try_emplace(key_of(set));
    Known& known = entry->second;
    if (!fresh) {
      if (known.open && known.containers == containers_)
        return Error::invalid("schema {}: refers to itself without an end", path);
      known.named |= known.open;
      return known.possible ? Expression(known.name) : Expression();
    }
    if (known_.size() > kSchemaRulesMax || depth_ >= kSchemaDepthMax || rules_.size() > kGbnfTextBytesMax)
      return Error::invalid(
          "schema {}: with this part the schema needs more than {} rules, {} bytes or {} levels", path,
          kSchemaRulesMax, kGbnfTextBytesMax, kSchemaDepthMax);
    known.name = rules_.fresh_name();
    known.containers = containers_;
    ++depth_;
    FATHOM_ASSIGN(const Expression body, value(set));
    --depth_;
    known.open = false;
    known.possible = body.has_value();
    // Who named it before this was known must find it, as a rule without an end.
    if (!body && known.named) rules_.define(known.name, "\" \" " + known.name);
    if (!body) return body;
    rules_.define(known.name, *body);
    return Expression(known.name);
  }

  Result<Expression> value(const SchemaSet& set) {
    FATHOM_ASSIGN(const SchemaShape shape, gather_shape(document_, set));
    work_ += static_cast<int64_t>(shape.places.size() * (shape.members.size() + 1));
    if (work_ > kSchemaWorkMax)
      return Error::invalid("schema {}: too many schemas that apply together", set.front().path);
    if (shape.types == 0) return nothing(shape.path);
    if (shape.choice) return choices(shape);
    std::vector<std::string> parts;
    if (shape.values) {
      for (const SchemaJson& one : *shape.values) parts.push_back(constant(one));
    } else {
      FATHOM_TRY(add_types(shape, set.front().path, parts));
    }
    if (parts.empty()) return nothing(shape.path.empty() ? set.front().path : shape.path);
    return Expression(fmt::format("{}", fmt::join(parts, " | ")));
  }

  Result<void> add_types(const SchemaShape& shape, const std::string& path, std::vector<std::string>& parts) {
    const auto add = [&](const Expression& part) {
      if (part)
        parts.push_back(*part);
      else
        nothing_at_ = path;
    };
    if (shape.types & kNull) parts.push_back("\"null\"");
    if (shape.types & kBoolean) parts.push_back("\"true\" | \"false\"");
    if (shape.types & (kInteger | kFraction)) {
      const bool integer = (shape.types & kFraction) == 0;
      if (shape.constrains_numbers)
        add(integer ? gbnf_integer(shape.numbers) : gbnf_number(shape.numbers));
      else
        add(rules_.use(integer ? JsonRules::kInteger : JsonRules::kNumber));
    }
    if (shape.types & kString) {
      FATHOM_ASSIGN(const Expression part, string(shape));
      add(part);
    }
    ++containers_;
    if (shape.types & kArray) {
      FATHOM_ASSIGN(const Expression part, array(shape));
      add(part);
    }
    if (shape.types & kObject) {
      FATHOM_ASSIGN(const Expression part, object(shape));
      add(part);
    }
    --containers_;
    return {};
  }

  /// One rule a choice, each with everything else that applies.
  Result<Expression> choices(const SchemaShape& shape) {
    const SchemaChoice& choice = *shape.choice;
    const SchemaPlace& owner = shape.places[choice.place];
    const std::string path = owner.path + (choice.one ? "/oneOf" : "/anyOf");
    if (choice.one) FATHOM_TRY(check_disjoint(choice.choices, path));
    std::vector<std::string> parts;
    for (const SchemaPlace& one : choice.choices) {
      FATHOM_ASSIGN(const SchemaShape own, gather_shape(document_, {one}));
      for (const SchemaPlace& place : own.places) {
        const bool back =
            std::any_of(shape.places.begin(), shape.places.end(), [&](const SchemaPlace& other) {
              return other.schema == place.schema &&
                     (&other == &owner || other.chosen_any || other.chosen_one);
            });
        if (back)
          return Error::invalid("schema {}: refers back to a schema that it is a choice of", one.path);
      }
      SchemaSet set = shape.places;
      (choice.one ? set[choice.place].chosen_one : set[choice.place].chosen_any) = true;
      set.push_back(one);
      FATHOM_ASSIGN(const Expression part, rule_of(set));
      if (part) parts.push_back(*part);
    }
    if (parts.empty()) return nothing(path);
    return Expression(fmt::format("{}", fmt::join(parts, " | ")));
  }

  Result<void> check_disjoint(const SchemaSet& choices, const std::string& path) {
    if (choices.size() > kSchemaParallelMax)
      return Error::invalid("schema {}: more than {} choices", path, kSchemaParallelMax);
    std::vector<ChoiceFacts> facts;
    for (size_t i = 0; i < choices.size(); ++i) {
      FATHOM_ASSIGN(ChoiceFacts own, choice_facts(document_, choices[i]));
      facts.push_back(std::move(own));
      for (size_t j = 0; j < i; ++j) {
        if (!provably_disjoint(facts[j], facts[i]))
          return Error::invalid(
              "schema {}: choices {} and {} may both be satisfied, which oneOf forbids; choices must "
              "differ in their types, constants, or a required member's constants (or use anyOf)",
              path, j, i);
      }
    }
    return {};
  }

  std::string constant(const SchemaJson& value) {
    if (!value.is_structured()) return gbnf_literal(value.dump());
    ++depth_;
    std::string text = value.is_array() ? "\"[\"" : "\"{\"";
    const std::string edge = rules_.use(JsonRules::kEdge);
    bool first = true;
    for (const auto& [name, inner] : value.items()) {
      text += " " + (first ? edge : rules_.use(JsonRules::kComma));
      if (value.is_object())
        text +=
            fmt::format(" {} {}", gbnf_literal(SchemaJson(name).dump() + ":"), rules_.use(JsonRules::kSpace));
      text += " " + constant(inner);
      first = false;
    }
    --depth_;
    return text + (first ? "" : " " + edge) + (value.is_array() ? " \"]\"" : " \"}\"");
  }

  Result<Expression> string(const SchemaShape& shape) {
    if (!shape.constrains_strings) return Expression(rules_.use(JsonRules::kString));
    if (shape.max_length >= 0 && shape.min_length > shape.max_length) return Expression();
    const std::string any = rules_.use(JsonRules::kChar);
    if (shape.format) return formatted(shape);
    std::string body = any;
    int64_t least = shape.min_length, most = shape.max_length;
    if (shape.pattern) {
      const std::string& path = shape.pattern->path;
      Result<PatternGrammar> pattern = gbnf_pattern(shape.pattern->word, any);
      if (!pattern.ok()) return Error::invalid("schema {}: {}", path, pattern.error().message);
      const bool long_enough = pattern->min_length >= least;
      const bool short_enough = most < 0 || (pattern->max_length >= 0 && pattern->max_length <= most);
      if (long_enough && short_enough)
        return Expression(fmt::format("\"\\\"\" {} \"\\\"\"", pattern->expression));
      if (pattern->repeated.empty())
        return Error::invalid(
            "schema {}: a pattern beside minLength or maxLength is supported only if it is "
            "^[class]*$ or keeps the lengths by itself",
            path);
      body = pattern->repeated;
      least = std::max(least, pattern->min_length);
      if (pattern->max_length >= 0)
        most = most < 0 ? pattern->max_length : std::min(most, pattern->max_length);
      if (most >= 0 && least > most) return Expression();
    }
    if (most < 0) return Expression(fmt::format("\"\\\"\" ({}){{{},}} \"\\\"\"", body, least));
    return Expression(fmt::format("\"\\\"\" ({}){{{},{}}} \"\\\"\"", body, least, most));
  }

  Result<Expression> formatted(const SchemaShape& shape) {
    const SchemaWord& format = *shape.format;
    if (shape.pattern || shape.min_length > 0 || shape.max_length >= 0)
      return Error::invalid("schema {}: a format beside other constraints of strings is not supported",
                            format.path);
    const std::optional<std::string> body = gbnf_format(format.word);
    if (!body)
      return Error::invalid(
          "schema {}: the format \"{}\" is not supported: expected date, time, date-time, uuid, ipv4, "
          "ipv6, hostname, email or uri",
          format.path, format.word);
    const auto [entry, fresh] = formats_.try_emplace(format.word);
    if (fresh) {
      entry->second = rules_.fresh_name();
      rules_.define(entry->second, fmt::format("\"\\\"\" {} \"\\\"\"", *body));
    }
    return Expression(entry->second);
  }

  Result<Expression> array(const SchemaShape& shape) {
    if (!shape.constrains_arrays) return Expression(rules_.use(JsonRules::kArray));
    const int64_t least = shape.min_items;
    int64_t most = shape.max_items;
    if (most >= 0 && least > most) return Expression();
    std::vector<std::string> firsts;
    for (const SchemaSet& first : shape.first_items) {
      if (most >= 0 && static_cast<int64_t>(firsts.size()) == most) break;
      FATHOM_ASSIGN(const Expression item, rule_of(first));
      if (!item) {
        most = static_cast<int64_t>(firsts.size());
        break;
      }
      firsts.push_back(*item);
    }
    const auto count = static_cast<int64_t>(firsts.size());
    Expression rest;
    if (most < 0 || most > count) {
      if (shape.items.empty())
        rest = rules_.use(JsonRules::kValue);
      else {
        FATHOM_ASSIGN(rest, rule_of(shape.items));
      }
      if (!rest) most = count;
    }
    if (most >= 0 && least > most) return Expression();
    const std::string edge = rules_.use(JsonRules::kEdge), comma = rules_.use(JsonRules::kComma);
    // From the end: what may follow behind k items, each optional where there are enough before.
    std::string tail = "";
    if (rest) {
      const int64_t low = std::max<int64_t>(least - count, 0);
      tail = most < 0 ? fmt::format("({} {}){{{},}}", comma, *rest, low)
                      : fmt::format("({} {}){{{},{}}}", comma, *rest, low, most - count);
      if (firsts.empty()) tail = first_of(*rest, comma, low, most);
    }
    for (int64_t k = count - 1; k >= 0; --k) {
      const std::string item =
          fmt::format("{}{} {}", k == 0 ? "" : comma + " ", firsts[static_cast<size_t>(k)], tail);
      if (k >= least && k > 0) {
        // A rule of its own: parentheses would nest as deep as there are items.
        const std::string name = rules_.fresh_name();
        rules_.define(name, item);
        tail = name + "?";
      } else {
        tail = item;
      }
    }
    if (tail.empty()) return Expression(fmt::format("\"[\" {} \"]\"", edge));
    return Expression(fmt::format("\"[\" {} {} \"]\"", edge,
                                  least > 0 ? tail + " " + edge : "(" + tail + " " + edge + ")?"));
  }

  /// `low` to `most` items, at least one: none is written by whoever calls.
  static std::string first_of(const std::string& item, const std::string& comma, int64_t low, int64_t most) {
    low = std::max<int64_t>(low, 1);
    if (most < 0) return fmt::format("{1} ({0} {1}){{{2},}}", comma, item, low - 1);
    return fmt::format("{1} ({0} {1}){{{2},{3}}}", comma, item, low - 1, most - 1);
  }

  struct Written {
    std::string text;  // "name": value
    bool required = false;
  };

  Result<Expression> object(const SchemaShape& shape) {
    if (!shape.constrains_objects) return Expression(rules_.use(JsonRules::kObject));
    const std::string space = rules_.use(JsonRules::kSpace);
    std::vector<Written> members;
    std::vector<std::string> names;
    for (const SchemaMember& member : shape.members) {
      names.push_back(member.name);
      Expression value;
      if (member.value.empty())
        value = rules_.use(JsonRules::kValue);
      else {
        FATHOM_ASSIGN(value, rule_of(member.value));
      }
      if (!value && member.required) return Expression();
      if (!value) continue;
      const std::string key = gbnf_literal(SchemaJson(member.name).dump() + ":");
      members.push_back({fmt::format("{} {} {}", key, space, *value), member.required});
    }
    Expression others;
    if (shape.additional.empty())
      others = rules_.use(JsonRules::kValue);
    else {
      FATHOM_ASSIGN(others, rule_of(shape.additional));
    }
    std::string extra;
    if (others) {
      const std::string key = names.empty() ? rules_.use(JsonRules::kString) : other_keys(names, rules_);
      extra = rules_.fresh_name();
      rules_.define(extra, fmt::format("{} \":\" {} {}", key, space, *others));
    }
    return Expression(
        fmt::format("\"{{\" {} {} \"}}\"", rules_.use(JsonRules::kEdge), member_list(members, extra)));
  }

  // Two chains from the end: what may come when something is there already (it begins with commas), and what
  // may come when nothing is.
  std::string member_list(const std::vector<Written>& members, const std::string& extra) {
    const std::string edge = rules_.use(JsonRules::kEdge), comma = rules_.use(JsonRules::kComma);
    std::string after = extra.empty() ? edge : fmt::format("({} {})* {}", comma, extra, edge);
    std::string before = extra.empty() ? "" : fmt::format("({} {})?", extra, after);
    size_t shared = 0;  // members from here on are only ever reached with something before them
    while (shared < members.size() && !members[shared].required) ++shared;
    for (size_t k = members.size(); k-- > 0;) {
      const Written& member = members[k];
      if (k <= shared) {
        const std::string name = rules_.fresh_name();
        rules_.define(name, after);
        after = name;
        const std::string with = member.text + " " + after;
        if (member.required || before.empty()) {
          before = member.required ? with : "(" + with + ")?";
        } else {
          const std::string rest = rules_.fresh_name();
          rules_.define(rest, before);
          before = fmt::format("({} | {})", with, rest);
        }
      }
      after = member.required ? fmt::format("{} {} {}", comma, member.text, after)
                              : fmt::format("({} {})? {}", comma, member.text, after);
    }
    return before;
  }

  const SchemaJson& document_;
  JsonRules rules_;
  std::map<Key, Known> known_;
  std::map<std::string, std::string> formats_;
  std::string nothing_at_ = "#";
  int containers_ = 0;
  int depth_ = 0;
  int64_t work_ = 0;
};

}  // namespace

Result<std::string> json_schema_gbnf(std::string_view schema_json, std::string_view prefix) {
  FATHOM_CHECK(!prefix.empty(), "rules need a prefix");
  FATHOM_ASSIGN(const SchemaJson document, parse_schema(schema_json));
  return SchemaWriter(document, prefix).write(prefix);
}

}  // namespace fathom
