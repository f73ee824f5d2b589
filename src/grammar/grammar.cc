#include "grammar/grammar.h"

#include <algorithm>
#include <unordered_map>

#include "grammar/automaton.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_masks.h"
#include "grammar/state_sets.h"
#include "grammar/vocabulary.h"

namespace fathom {
namespace {

using Set = StateSets::Set;

constexpr size_t kWalkBytesMax = size_t{8} << 20;  // of one answer's memory before it is tidied up
constexpr size_t kWalkStacksMax = 2'000'000;       // nodes that are in use at once
constexpr size_t kWalkMaskBytesMax = size_t{2} << 20;

class CompiledGrammar;

class GrammarMask : public TokenMask {
 public:
  explicit GrammarMask(std::shared_ptr<const CompiledGrammar> grammar);
  void restrict(std::span<uint64_t> bits) override;
  void accept(int32_t id) override;

 private:
  const IdSet& allowed();
  void tidy();

  std::shared_ptr<const CompiledGrammar> grammar_;
  StateSets sets_;
  Set at_;
  std::unordered_map<Set, IdSet> masks_;  // of places that this answer has been at
  size_t mask_bytes_ = 0;
  size_t tidy_at_bytes_ = kWalkBytesMax;
};

class CompiledGrammar : public Grammar, public std::enable_shared_from_this<CompiledGrammar> {
 public:
  CompiledGrammar(Automaton automaton, std::shared_ptr<const TokenTrie> trie)
      : automaton_(std::move(automaton)),
        trie_(std::move(trie)),
        masks_(automaton_, *trie_),
        end_only_(trie_->end_bits()) {
    masks_.prepare();
  }
  std::unique_ptr<TokenMask> new_mask() const override {
    return std::make_unique<GrammarMask>(shared_from_this());
  }

  const Automaton& automaton() const { return automaton_; }
  const TokenTrie& trie() const { return *trie_; }
  const StateMasks& masks() const { return masks_; }
  const IdSet& end_only() const { return end_only_; }

 private:
  Automaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  StateMasks masks_;
  IdSet end_only_;
};

GrammarMask::GrammarMask(std::shared_ptr<const CompiledGrammar> grammar)
    : grammar_(std::move(grammar)), sets_(grammar_->automaton()), at_(sets_.start()) {}

void GrammarMask::restrict(std::span<uint64_t> bits) {
  FATHOM_CHECK(bits.size() == grammar_->trie().words(), "{} words of a mask, expected {}", bits.size(),
               grammar_->trie().words());
  allowed().restrict(bits);
}

void add_token_edges(const Automaton& automaton, const TokenTrie& trie, uint32_t state,
                     std::span<uint64_t> bits) {
  for (const TokenEdge& edge : automaton.tokens(state)) {
    const auto word = static_cast<size_t>(edge.id) / 64;
    const uint64_t bit = uint64_t{1} << (edge.id % 64);
    if (!edge.other) {
      bits[word] |= bit;
      continue;
    }
    const uint64_t before = bits[word] & bit;
    for (int32_t id = 0; id < trie.size(); id += 64) {
      const int32_t count = std::min(64, trie.size() - id);
      bits[static_cast<size_t>(id) / 64] |= count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    }
    if (before == 0) bits[word] &= ~bit;
  }
}

const IdSet& GrammarMask::allowed() {
  if (at_ == StateSets::kDead) return grammar_->end_only();
  if (const auto known = masks_.find(at_); known != masks_.end()) return known->second;
  const TokenTrie& trie = grammar_->trie();
  std::vector<uint64_t> bits(trie.words());
  std::unique_ptr<StateMask> own;
  sets_.allow_work(kWorkPerToken);
  const std::vector<StateItem> items(sets_.items(at_).begin(), sets_.items(at_).end());
  bool too_much = false;
  for (const StateItem& item : items) {
    add_token_edges(grammar_->automaton(), trie, item.state, bits);
    const StateMask* mask = grammar_->masks().of(item.state, own);
    too_much |= mask == nullptr;
    if (mask == nullptr) break;
    mask->allowed.add_to(bits);
    if (mask->exits.empty()) continue;
    const Set outside = sets_.leave(item.stack);
    if (outside == StateSets::kDead) continue;
    for (const uint32_t node : mask->exits) walk_tokens(trie, sets_, node, outside, bits, [](uint32_t) {});
  }
  if (too_much || sets_.exhausted()) {
    at_ = StateSets::kDead;
    return grammar_->end_only();
  }
  const std::span<const uint64_t> ends = trie.end_bits();
  for (size_t word = 0; word < bits.size(); ++word)
    bits[word] = (bits[word] & ~ends[word]) | (sets_.ended(at_) ? ends[word] : 0);
  const bool stuck = std::all_of(bits.begin(), bits.end(), [](uint64_t word) { return word == 0; });
  IdSet mask = stuck ? grammar_->end_only() : IdSet(bits);
  if (mask_bytes_ + mask.bytes() > kWalkMaskBytesMax) {
    masks_.clear();
    mask_bytes_ = 0;
  }
  mask_bytes_ += mask.bytes();
  return masks_.emplace(at_, std::move(mask)).first->second;
}

void GrammarMask::accept(int32_t id) {
  const TokenTrie& trie = grammar_->trie();
  if (at_ == StateSets::kDead) return;
  if (id < 0 || id >= trie.size() || trie.is_end(id)) {
    at_ = StateSets::kDead;  // an end that came in time leaves nothing to follow either
    return;
  }
  sets_.allow_work(kWorkPerToken);
  at_ = sets_.step_token(at_, id, trie.token(id));
  if (sets_.exhausted()) at_ = StateSets::kDead;
  tidy();
}

// What was remembered of earlier places is made again where it is needed again.
void GrammarMask::tidy() {
  if (sets_.bytes() < tidy_at_bytes_) return;
  masks_.clear();
  mask_bytes_ = 0;
  sets_.keep_only(at_);
  if (sets_.stacks().size() > kWalkStacksMax) at_ = StateSets::kDead;
  tidy_at_bytes_ = std::max(kWalkBytesMax, 2 * sets_.bytes());
}

Result<void> check_tokens(const Gbnf& gbnf, const TokenTrie& trie) {
  for (const GbnfNode& node : gbnf.nodes) {
    const bool other = node.kind == GbnfNode::Kind::kOtherToken;
    if (node.kind != GbnfNode::Kind::kToken && !other) continue;
    if (node.id >= trie.size())
      return Error::invalid("grammar: token <[{}]>: expected an id below {}", node.id, trie.size());
    if (!other && trie.is_end(node.id))
      return Error::invalid(
          "grammar: token <[{}]> ends an answer: it is allowed where the grammar can end, and only "
          "there",
          node.id);
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Grammar>> compile_gbnf(std::string_view text,
                                                    std::shared_ptr<const GrammarVocabulary> vocabulary) {
  const auto trie = std::dynamic_pointer_cast<const TokenTrie>(vocabulary);
  FATHOM_CHECK(trie != nullptr, "a vocabulary that GrammarVocabulary::make() did not make");
  FATHOM_ASSIGN(const Gbnf gbnf, parse_gbnf(text));
  FATHOM_TRY(check_tokens(gbnf, *trie));
  FATHOM_ASSIGN(Automaton automaton, build_automaton(gbnf));
  return std::shared_ptr<const Grammar>(std::make_shared<CompiledGrammar>(std::move(automaton), trie));
}

}  // namespace fathom
