// What a page has that `weir read --html` wrote: all answers, in place of a program that answers (docs/page.md).
import type { About, Flow, Parameters, Value } from './api';

/** A column of rows; of one with few values, these, and which of them each row has: without places, the first one. */
type Column = Value[] | { values: Value[]; at: number[] };

/** An answer, with its rows as columns. */
interface Answer {
    /** What the rows are: `flows` or `groups`. */
    rows: string;
    count: number;
    names: string[];
    columns: Column[];
    /** The length of the intervals, if it has them. */
    every?: string;
    [more: string]: unknown;
}

interface Content {
    about: About;
    answers: Record<string, Answer>;
}

// The build reads the lists of questions without a document.
const element = typeof document === 'undefined' ? null : document.getElementById('answers');
const content = element && (JSON.parse(element.textContent) as Content);

/** Whether the page is such a file. */
export const isFile = content !== null;

/** The name of a question. A file has one time, and intervals of one length. */
export function nameOf(parameters: Parameters): string {
    const named = Object.entries(parameters).filter(([name, value]) => (value || name === 'every') && !['from', 'to'].includes(name));
    const given = named.map(([name, value]) => [name, name === 'every' ? '' : value] as [string, string]);
    return JSON.stringify(given.sort(([one], [other]) => (one < other ? -1 : 1)));
}

function answerOf({ rows, count, names, columns, ...more }: Answer) {
    const value = (column: Column, row: number) => (Array.isArray(column) ? column[row] : column.values[column.at[row] ?? 0]);
    const row = (at: number): Flow => Object.fromEntries(names.map((name, column) => [name, value(columns[column]!, at) ?? null]));
    return { ...more, [rows]: Array.from({ length: count }, (_, at) => row(at)) };
}

/** The answer of the file to a request; undefined if it has none. */
export function answer(path: string, parameters: Parameters): unknown {
    if (path === '/about') return content?.about;
    const found = path === '/stored' ? content?.answers[nameOf(parameters)] : undefined;
    return found && found.every === parameters.every ? answerOf(found) : undefined;
}

/** Whether a question can be asked: always, but of a file. */
export const isOffered = (parameters: Parameters): boolean => content === null || nameOf(parameters) in content.answers;
