// Filters in the language of --where (docs/views.md): conditions of values, and adding them to a filter.
import type { Value } from './api';

/** Words that stand in no expression as values without quotes. */
const KEYWORDS = ['and', 'or', 'not', 'in'];
/** The types of fields whose values are texts, as /fields names them. */
const TEXTS = ['text', 'hostname', 'caseless', 'names'];

/** A text as a literal; undefined if the language has none for it: it has no escapes. */
function quoted(text: string): string | undefined {
    if (!text.includes('"')) return `"${text}"`;
    return text.includes("'") ? undefined : `'${text}'`;
}

/**
 * The condition that selects the flows in which a field has a value, or with null those in which it has none. Undefined
 * if the language cannot say it: texts with both kinds of quotes, names of hosts with a star.
 */
export function condition(name: string, value: Value | undefined, type: string | undefined): string | undefined {
    if (value === null || value === undefined) return `not ${name}`;
    const text = String(value);
    if (type === 'hostname' && text.includes('*')) return undefined;
    const isBare = /^[\w.:/+%-]+$/.test(text) && !KEYWORDS.includes(text.toLowerCase()) && !TEXTS.includes(type ?? '');
    const literal = isBare ? text : quoted(text);
    return literal === undefined ? undefined : `${name} = ${literal}`;
}

interface Token {
    text: string;
    start: number;
    /** Parentheses around it. */
    depth: number;
}

/** Words, quoted texts and signs. */
function tokens(where: string): Token[] {
    let depth = 0;
    return [...where.matchAll(/"[^"]*"?|'[^']*'?|[\w.:/+%*-]+|&&|\|\||\S/g)].map(({ 0: text, index }) => {
        if (text === '(') depth += 1;
        const token = { text, start: index, depth };
        if (text === ')') depth -= 1;
        return token;
    });
}

/** A filter with a condition more: in parentheses where its parts are joined by `or`, and unchanged if it has the condition. */
export function and(where: string, condition: string): string {
    const text = where.trim();
    if (text === '') return condition;
    const joints = tokens(text).filter(({ depth, text }) => depth === 0 && /^(and|or|&&|\|\|)$/i.test(text));
    if (joints.some(({ text }) => /^(or|\|\|)$/i.test(text))) return `(${text}) and ${condition}`;
    const bounds = [0, ...joints.flatMap(({ start, text }) => [start, start + text.length]), text.length];
    const parts = bounds.flatMap((start, at) => (at % 2 === 0 ? [text.slice(start, bounds[at + 1]).trim()] : []));
    return parts.includes(condition) || text.endsWith(` and ${condition}`) ? text : `${text} and ${condition}`;
}

/** The unfinished name before a place of a filter, if a name may stand there: where it begins. */
export function nameBefore(where: string, place: number): number | undefined {
    const before = tokens(where.slice(0, place));
    const word = before.at(-1);
    if (!word || word.start + word.text.length !== place || !/^[a-z]\w*$/i.test(word.text)) return undefined;
    const previous = before.at(-2)?.text.toLowerCase() ?? 'and';
    // Behind an operator stands a value.
    return /^[=<>{,]$|^(in|eq|ne|lt|le|gt|ge|contains|starts-with|ends-with)$/.test(previous) ? undefined : word.start;
}
