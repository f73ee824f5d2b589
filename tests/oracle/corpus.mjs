// A deterministic corpus for tokenizer comparisons: the same lines on every machine. Characters are limited to
// those assigned in Unicode 10, so that engines of different Unicode versions agree about them.

// Words in their own scripts, so that real merges are exercised and not only single bytes.
const WORDS = {
  english: 'the of and engine token memory because people which their would about there think through never quietly'
    + ' Expert MODEL OpenAI iPhone internationalization',
  italian: "l'uomo dell'acqua un'abilità c'è perché così città più già l'età d'été po' virtù lunedì ramo del lago",
  french: "l'été où qu'à déjà naïve façon œuvre garçon aujourd'hui être ça Noël s'était jusqu'où très",
  german: 'Straße größer Übung schön Mädchen äußerst Donaudampfschifffahrt über daß Füße öffnen ich',
  vietnamese: 'người Việt Nam được không những một trước đường nghĩa phải hỏi thường',
  polish: 'żółć źdźbło święto mąż łódź chrząszcz brzmi trzcinie że się',
  turkish: 'İstanbul ığdır şeker çağ güneş öğretmen için değil',
  russian: 'привет мир человек время который объявление Москва ещё жизнь сегодня Ёлка',
  greek: 'καλημέρα κόσμε άνθρωπος Ελλάδα φιλοσοφία ὁ λόγος ἦν ἀρχή ῥοδοδάκτυλος',
  hebrew: 'שלום עולם ישראל בְּרֵאשִׁית אָדָם ספר דבר הזה',
  arabic: 'السلام عليكم العالم كتاب مُحَمَّد اللُّغَة العربية في من هذا ١٢٣٤ ٢٠٢٦',
  persian: 'می‌خواهم کتاب‌ها گفت‌وگو فارسی ۱۴۰۵ پنجره',
  hindi: 'नमस्ते दुनिया हिन्दी भाषा क्षेत्र विद्यालय में है १२३ कि',
  bengali: 'বাংলা ভাষা পৃথিবী আমি তোমাকে ভালোবাসি ১২৩',
  tamil: 'தமிழ் மொழி உலகம் நான் வணக்கம் இந்தியா',
  telugu: 'తెలుగు భాష ప్రపంచం నమస్కారం',
  thai: 'สวัสดีชาวโลก ภาษาไทย ประเทศ น้ำ ที่ กรุงเทพมหานคร',
  khmer: 'សួស្តី ពិភពលោក ភាសាខ្មែរ',
  georgian: 'გამარჯობა მსოფლიო საქართველო ენა',
  armenian: 'Բարեւ աշխարհ Հայաստան լեզու',
  amharic: 'ሰላም ዓለም ኢትዮጵያ ቋንቋ',
  korean: '안녕하세요 세계 한국어 사람이 그리고 봄·봄 김유정 것이다 있었다 값비싼 뷁 ㅋㅋㅋ ㅠㅠ',
  japanese: '日本語 こんにちは カタカナと漢字 私は学生です コンピューター ー・ー 々 ヴァイオリン ゟ ヿ ｶﾀｶﾅ',
  chinese: '你好，世界 人工智能 中华人民共和国 的是不了 机器学习。 龥 《红楼梦》 一二三 〇 㐀 𠀀',
};

const CODE = [
  '#include <stdio.h>', 'int main(void) {', '\tfor (int i = 0; i < n; ++i) x[i] += y[i]*z[i];', "\tprintf(\"%d\\n\", a->b);",
  '}', '// TODO(x): fix', '/* c */', 'def f(self, *args, **kwargs):', "    return {'a': 1, \"b\": [2, 3]}", 'SELECT * FROM t WHERE a<>b;',
  '<div class="x">&nbsp;</div>', 'https://example.org/a_b?q=1&r=%20#top', '$HOME/.local/bin:${PATH}', "it's 'll '$x$'", 'a&&b||!c', 'x = y ** 2 // 3',
  '{"k":null,"v":[1.5e-3,true]}', '| a | b |', '|---|---|', '```cpp', '---', '===>', '@decorator', 'std::vector<std::pair<int,int>>', '    ', '\t\t', '1.2.3-rc4+5',
  '0xDEADBEEF', '\\frac{a}{b}', "don't", "I'm we've they'd", '(état)', "d'été", 'C++ & C#', 'rfid501.go', ' 3.14', '1,000,000.00 €',
];

const EMOJI = ['🙂', '👩‍👩‍👧‍👦', '🇮🇹🇰🇷', '1️⃣', '👍🏽', '❤️', '🏴‍☠️', '™', '→', '½', '№', '™️', '☃', '𝔘𝔫𝔦', '①', 'ﬁ', '…', '—', '«»', '¿¡', '€£¥'];
const SPACES = [' ', '  ', '   ', '\n', '\r\n', '\r\n\r\n', '\n\n\n', '\t', '\t\t', ' \n', '\n ', '\u00a0', '\u3000', '\u2028', ' \u2009', '\u200b', '\v', '\f', '\u0085', '\ufeff', '\u001c'];
const SIGNS = [...'!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~«»“”‘’–—…·•§¶†‡°±×÷¤¬、。「」・〜￥'];
// Letters, marks, digits, signs, controls; first and last code point of each range.
const RANGES = [
  [0x00, 0x7f], [0xa0, 0x17f], [0x300, 0x36f], [0x391, 0x3a1], [0x410, 0x44f], [0x5b0, 0x5c7], [0x5d0, 0x5ea], [0x620, 0x65f],
  [0x660, 0x66d], [0x905, 0x94d], [0xe01, 0xe3a], [0x1100, 0x1112], [0x1ea0, 0x1ef9], [0x2000, 0x2027], [0x2070, 0x2071],
  [0x20a0, 0x20bf], [0x20d0, 0x20f0], [0x2150, 0x2188], [0x2190, 0x23fe], [0x3000, 0x303f], [0x3041, 0x3096], [0x3099, 0x30ff],
  [0x4e00, 0x4e80], [0x9fa0, 0x9faa], [0xac00, 0xac80], [0xfb00, 0xfb06], [0xff01, 0xff9d], [0x10400, 0x1044f], [0x1d7ce, 0x1d7ff],
  [0x1f600, 0x1f64f], [0x20000, 0x20010], [0xe0100, 0xe01ef],
];

/** Small generator with a fixed sequence (mulberry32). */
function makeRandom(seed) {
  return (bound) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % bound;
  };
}

/** @returns {string[]} texts, most of them one line, some with line breaks inside */
export function makeCorpus(linesPerKind = 700, seed = 20260910) {
  const random = makeRandom(seed);
  const pick = (list) => list[random(list.length)];
  const many = (most, make) => Array.from({ length: 1 + random(most) }, make).join('');
  const scalar = () => {
    const [first, last] = pick(RANGES);
    return String.fromCodePoint(first + random(last - first + 1));
  };
  const number = () => many(random(4) ? 4 : 20, () => String(random(10)));
  const scripts = Object.values(WORDS).map((words) => words.split(' '));
  const word = () => pick(pick(scripts));

  const kinds = scripts.map((words) => () => many(14, () => pick(words) + (random(6) ? ' ' : pick([', ', '. ', "'", '\n', '', '-', number()]))));
  kinds.push(
    () => many(6, () => pick(CODE) + pick(['\n', '\r\n', ' ', '\n\n', '\n    '])),
    () => many(10, () => pick(EMOJI) + pick(['', '', ' ', word()])),
    () => many(12, () => pick(SPACES) + pick(['', word(), number(), pick(SIGNS)])),
    () => many(10, () => pick(["'", '’', '(', '"', '-', '_']) + word()),
    () => many(12, () => number() + pick(['', '.', ',', ' ', word(), '%'])),
    () => many(20, () => pick(SIGNS) + (random(3) ? '' : pick([' ', '\n', word()]))),
    () => many(30, scalar),
    () => many(8, () => word() + pick(['', ' ', pick(SIGNS), number(), pick(EMOJI), pick(SPACES)])),
    () => pick([...'ab =-\n\t你한é']).repeat(1 + random(300)),
    // Random bytes, as they look after decoding.
    () => new TextDecoder().decode(Uint8Array.from({ length: 1 + random(60) }, () => random(256))).replace(/\p{Cn}|\p{Co}/gu, ''),
  );
  const lines = [];
  for (let line = 0; line < linesPerKind; ++line) for (const kind of kinds) lines.push(kind());
  return lines;
}

/** Texts that mix added tokens, whole and damaged, into words. */
export function makeSpecialCorpus(tokens, count = 3000, seed = 41) {
  const random = makeRandom(seed);
  const pick = (list) => list[random(list.length)];
  const words = Object.values(WORDS).flatMap((list) => list.split(' '));
  const damaged = (token) => token.slice(random(3), token.length - random(3));
  return Array.from({ length: count }, () => Array.from({ length: 1 + random(8) },
    () => pick(['', ' ', '\n', '<']) + pick([pick(words), pick(tokens), damaged(pick(tokens))])).join(''));
}
