#include "grammar/nfa.h"

#include <algorithm>
#include <map>
#include <utility>

namespace fathom {
namespace {

using Kind = GbnfNode::Kind;
using Edge = NfaEdge::Kind;

// A rule is written out where it is used when that makes masks cheap (a character, white space) and stays
// small.
constexpr int64_t kInlineFinite = 40;   // states of a rule without loops
constexpr int64_t kInlineLooping = 12;  // of one with loops
constexpr int64_t kInlineOnce = 2000;   // of one that is used once
constexpr int kInlineDepth = 8;

struct Shape {
  int64_t states = 0;
  bool loops = false;
  int depth = 0;  // of rules written out in rules
};

/// Finds which rules are empty, which are recursive, and how large each would be.
class Facts {
 public:
  explicit Facts(const Gbnf& gbnf)
      : gbnf_(gbnf), facts_(gbnf.rules.size()), refs_(gbnf.rules.size()), uses_(gbnf.rules.size()) {}

  std::vector<RuleFacts> find() {
    for (size_t rule = 0; rule < refs_.size(); ++rule) collect(gbnf_.rules[rule].body, false, refs_[rule]);
    find_nullable();
    shapes_.resize(refs_.size());
    for (const int32_t rule : callees_first()) {
      if (rule == gbnf_.root) continue;
      const auto index = static_cast<size_t>(rule);
      const Shape shape = shape_of(gbnf_.rules[index].body);
      const int64_t limit = uses_[index] == 1 ? kInlineOnce : shape.loops ? kInlineLooping : kInlineFinite;
      if (shape.states > limit || shape.depth >= kInlineDepth) continue;
      facts_[index].inlined = true;
      shapes_[index] = {shape.states, shape.loops, shape.depth + 1};
    }
    find_reachable();
    return std::move(facts_);
  }

 private:
  const GbnfNode& node(int32_t id) const { return gbnf_.nodes[static_cast<size_t>(id)]; }

  void collect(int32_t id, bool copied, std::vector<int32_t>& refs) {
    const GbnfNode& it = node(id);
    if (it.kind == Kind::kRule) {
      refs.push_back(it.id);
      uses_[static_cast<size_t>(it.id)] += copied ? 2 : 1;
    }
    copied |= it.kind == Kind::kRepeat && std::max(it.min + (it.max < 0), it.max) > 1;
    for (const int32_t child : it.children) collect(child, copied, refs);
  }

  // From what is empty up: each part and each rule becomes nullable once, so the work is linear.
  void find_nullable() {
    const size_t count = gbnf_.nodes.size();
    std::vector<int32_t> parent(count, -1), body_of(count, -1);  // the rule whose body it is
    std::vector<size_t> missing(count, 1);  // parts that have to be nullable before it is
    std::vector<std::vector<int32_t>> users(refs_.size());  // parts that name a rule
    std::vector<int32_t> pending;
    for (size_t rule = 0; rule < refs_.size(); ++rule)
      body_of[static_cast<size_t>(gbnf_.rules[rule].body)] = static_cast<int32_t>(rule);
    for (size_t id = 0; id < count; ++id) {
      const GbnfNode& it = gbnf_.nodes[id];
      for (const int32_t child : it.children) parent[static_cast<size_t>(child)] = static_cast<int32_t>(id);
      if (it.kind == Kind::kRule) users[static_cast<size_t>(it.id)].push_back(static_cast<int32_t>(id));
      if (it.kind == Kind::kSequence) missing[id] = it.children.size();
      if ((it.kind == Kind::kBytes && it.bytes.empty()) || (it.kind == Kind::kRepeat && it.min == 0) ||
          missing[id] == 0)
        pending.push_back(static_cast<int32_t>(id));
    }
    std::vector<char> done(count);
    while (!pending.empty()) {
      const auto id = static_cast<size_t>(pending.back());
      pending.pop_back();
      if (std::exchange(done[id], 1)) continue;
      if (const int32_t above = parent[id]; above >= 0) {
        size_t& left = missing[static_cast<size_t>(above)];
        if (left > 0 && --left == 0) pending.push_back(above);
      }
      if (body_of[id] < 0) continue;
      const auto rule = static_cast<size_t>(body_of[id]);
      facts_[rule].nullable = true;
      pending.insert(pending.end(), users[rule].begin(), users[rule].end());
    }
  }

  /// Rules that take part in no recursion, each after those that it names.
  std::vector<int32_t> callees_first() const {
    const size_t count = refs_.size();
    std::vector<std::vector<int32_t>> users(count);
    std::vector<size_t> open_refs(count), open_users(count);
    for (size_t rule = 0; rule < count; ++rule) {
      open_refs[rule] = refs_[rule].size();
      for (const int32_t ref : refs_[rule]) {
        users[static_cast<size_t>(ref)].push_back(static_cast<int32_t>(rule));
        ++open_users[static_cast<size_t>(ref)];
      }
    }
    std::vector<char> done(count);
    const auto peel = [&](std::vector<size_t>& open, const std::vector<std::vector<int32_t>>& onward) {
      std::vector<int32_t> order;
      for (size_t rule = 0; rule < count; ++rule)
        if (!done[rule] && open[rule] == 0) order.push_back(static_cast<int32_t>(rule));
      for (size_t k = 0; k < order.size(); ++k) {
        done[static_cast<size_t>(order[k])] = 1;
        for (const int32_t other : onward[static_cast<size_t>(order[k])])
          if (--open[static_cast<size_t>(other)] == 0 && !done[static_cast<size_t>(other)])
            order.push_back(other);
      }
      return order;
    };
    std::vector<int32_t> order = peel(open_refs, users);
    std::vector<int32_t> above =
        peel(open_users, refs_);  // they use recursive rules but are not part of them
    order.insert(order.end(), above.rbegin(), above.rend());
    return order;
  }

  Shape shape_of(int32_t id) const {
    constexpr int64_t kMuch = 1'000'000'000;
    const GbnfNode& it = node(id);
    Shape shape;
    switch (it.kind) {
      case Kind::kBytes:
        shape.states = static_cast<int64_t>(it.bytes.size());
        break;
      case Kind::kClass:
        shape.states = it.ranges.back().last < 0x80 ? 1 : 8;
        break;
      case Kind::kRule:
        shape.states = 1;
        if (facts_[static_cast<size_t>(it.id)].inlined) shape = shapes_[static_cast<size_t>(it.id)];
        break;
      case Kind::kToken:
      case Kind::kOtherToken:
        shape.states = 1;
        break;
      default:
        break;
    }
    for (const int32_t child : it.children) {
      const Shape inner = shape_of(child);
      shape.states += inner.states;
      shape.loops |= inner.loops;
      shape.depth = std::max(shape.depth, inner.depth);
    }
    if (it.kind == Kind::kRepeat) {
      shape.states *= std::max({it.min, it.max, 1});
      shape.loops |= it.max < 0;
    }
    shape.states = std::min(shape.states, kMuch);
    return shape;
  }

  void find_reachable() {
    std::vector<int32_t> pending = {gbnf_.root};
    std::vector<char> seen(refs_.size());
    seen[static_cast<size_t>(gbnf_.root)] = 1;
    while (!pending.empty()) {
      const auto rule = static_cast<size_t>(pending.back());
      pending.pop_back();
      facts_[rule].reachable = !facts_[rule].inlined;
      for (const int32_t ref : refs_[rule]) {
        if (seen[static_cast<size_t>(ref)]) continue;
        seen[static_cast<size_t>(ref)] = 1;
        pending.push_back(ref);
      }
    }
  }

  const Gbnf& gbnf_;
  std::vector<RuleFacts> facts_;
  std::vector<std::vector<int32_t>> refs_;  // of each rule, with repeats
  std::vector<int32_t> uses_;               // of each rule; two and more in a repetition that is written out
  std::vector<Shape> shapes_;
};

class Builder {
 public:
  Builder(const Gbnf& gbnf, const std::vector<RuleFacts>& facts, size_t states_max)
      : gbnf_(gbnf), facts_(facts), states_max_(states_max) {}

  Result<Nfa> build(int32_t rule) {
    const GbnfRule& it = gbnf_.rules[static_cast<size_t>(rule)];
    if (!place(it.body, Nfa::kStart, Nfa::kFinal))
      return Error::invalid(
          "grammar, line {}, column {}: the rule \"{}\", with repetitions written out, needs more "
          "than the {} states that are left of {}",
          it.line, it.column, it.name, states_max_, kNfaStatesMax);
    return std::move(nfa_);
  }

 private:
  // Each place() puts a part between two states; false when there are too many.
  bool place(int32_t id, int32_t from, int32_t to) {
    if (nfa_.first_edge.size() + nfa_.edges.size() / 4 > states_max_) return false;
    const GbnfNode& it = gbnf_.nodes[static_cast<size_t>(id)];
    switch (it.kind) {
      case Kind::kBytes:
        place_bytes(it.bytes, from, to);
        return true;
      case Kind::kClass:
        place_class(it.ranges, from, to);
        return true;
      case Kind::kRule:
        return place_rule(it.id, from, to);
      case Kind::kToken:
        nfa_.add_edge(from, {.kind = Edge::kToken, .id = it.id, .target = to});
        return true;
      case Kind::kOtherToken:
        nfa_.add_edge(from, {.kind = Edge::kOtherToken, .id = it.id, .target = to});
        return true;
      case Kind::kSequence:
        return place_sequence(it.children, from, to);
      case Kind::kChoice:
        return std::all_of(it.children.begin(), it.children.end(),
                           [&](int32_t child) { return place(child, from, to); });
      case Kind::kRepeat:
        return place_repeat(it, from, to);
    }
    return false;
  }

  void skip(int32_t from, int32_t to) { nfa_.add_edge(from, {.target = to}); }

  void place_bytes(std::string_view bytes, int32_t from, int32_t to) {
    if (bytes.empty()) return skip(from, to);
    for (size_t k = 0; k < bytes.size(); ++k) {
      const int32_t next = k + 1 == bytes.size() ? to : nfa_.add_state();
      const auto byte = static_cast<uint8_t>(bytes[k]);
      nfa_.add_edge(from, {.kind = Edge::kBytes, .first = byte, .last = byte, .target = next});
      from = next;
    }
  }

  // Equal ends of spellings share their states.
  void place_class(const CodeRanges& ranges, int32_t from, int32_t to) {
    std::map<std::vector<ByteRange>, int32_t> ends;
    for (const ByteSequence& sequence : utf8_sequences(ranges)) {
      int32_t target = to;
      std::vector<ByteRange> end;
      for (int k = sequence.length - 1; k >= 0; --k) {
        const ByteRange range = sequence.bytes[static_cast<size_t>(k)];
        end.push_back(range);
        int32_t source = from;
        bool fresh = true;
        if (k > 0) {
          const auto [entry, is_new] = ends.try_emplace(end, 0);
          if (is_new) entry->second = nfa_.add_state();
          source = entry->second;
          fresh = is_new;
        }
        if (fresh)
          nfa_.add_edge(source,
                        {.kind = Edge::kBytes, .first = range.first, .last = range.last, .target = target});
        target = source;
      }
    }
  }

  bool place_rule(int32_t rule, int32_t from, int32_t to) {
    const auto index = static_cast<size_t>(rule);
    if (facts_[index].inlined) return place(gbnf_.rules[index].body, from, to);
    nfa_.add_edge(from, {.kind = Edge::kCall, .id = rule, .target = to});
    if (facts_[index].nullable) skip(from, to);
    return true;
  }

  bool place_sequence(const std::vector<int32_t>& children, int32_t from, int32_t to) {
    if (children.empty()) skip(from, to);
    for (size_t k = 0; k < children.size(); ++k) {
      const int32_t next = k + 1 == children.size() ? to : nfa_.add_state();
      if (!place(children[k], from, next)) return false;
      from = next;
    }
    return true;
  }

  bool place_repeat(const GbnfNode& it, int32_t from, int32_t to) {
    const int32_t child = it.children[0];
    for (int32_t k = 0; k < it.min; ++k) {
      const int32_t next = nfa_.add_state();
      if (!place(child, from, next)) return false;
      from = next;
    }
    if (it.max < 0) {
      const int32_t loop = nfa_.add_state();
      skip(from, loop);
      skip(loop, to);
      return place(child, loop, loop);
    }
    for (int32_t k = it.min; k < it.max; ++k) {
      const int32_t next = nfa_.add_state();
      skip(from, to);
      if (!place(child, from, next)) return false;
      from = next;
    }
    skip(from, to);
    return true;
  }

  const Gbnf& gbnf_;
  const std::vector<RuleFacts>& facts_;
  size_t states_max_;
  Nfa nfa_;
};

}  // namespace

std::vector<RuleFacts> find_rule_facts(const Gbnf& gbnf) { return Facts(gbnf).find(); }

Result<Nfa> build_nfa(const Gbnf& gbnf, const std::vector<RuleFacts>& facts, int32_t rule,
                      size_t states_max) {
  return Builder(gbnf, facts, states_max).build(rule);
}

}  // namespace fathom
