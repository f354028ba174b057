// What the views of stored flows have in common: the flows that they are about, and what is said of an answer.
import { useMemo, useState } from 'preact/hooks';
import type { About, Field, Stored } from './api';
import type { Problem } from './ask';
import { Filter } from './filter';
import type { Chooser } from './groups';
import { Alert, Mistake } from './parts';
import { type Range, RangeBar, type Span, narrowed, rangeOf, rangeText, span } from './range';
import { link, parse } from './route';
import { count, instant, many, shown } from './text';

export interface ViewProps {
    settings: URLSearchParams;
    about: About;
    fields: Field[];
    /** How often the probe has come back: then questions are asked again. */
    returns: number;
}

/** The flows that a view is about. */
export interface Scope extends ViewProps {
    where: string;
    range: Range;
    /** Of this round; undefined for all times. */
    span: Span | undefined;
    round: number;
    askAgain: () => void;
    /** Changes settings of the URL. */
    go: (change: Record<string, string>) => void;
    /** Selects a time, which can be undone; undefined if there is one only. */
    select?: (span: Span) => void;
    chooser: Chooser;
}

export function useScope(view: string, { settings, about, fields, returns }: ViewProps): Scope {
    const [searches, setSearches] = useState(0);
    const round = searches + returns;
    const range = rangeOf(settings, about);
    const isFile = about.mode === 'file';
    const where = isFile ? '' : (settings.get('where') ?? '');
    // The time of the question, not of each picture of the page.
    const times = useMemo(() => span(range, about), [range.from, range.to, round]);
    // From what the URL has then: a plot keeps this function for longer than other settings hold.
    const go = (change: Record<string, string>) => {
        location.hash = link(view, { ...Object.fromEntries(parse().settings), ...change });
    };
    const byName = useMemo(() => new Map(fields.map((field) => [field.name, field])), [fields]);
    return {
        settings,
        about,
        fields,
        returns,
        where,
        range,
        span: times,
        round,
        askAgain: () => setSearches(searches + 1),
        go,
        select: isFile ? undefined : (to) => go(narrowed(settings, range, to)),
        chooser: { fields: byName, where, go: isFile ? undefined : (where) => go({ where }) },
    };
}

/** What the memory of a probe holds, and how it would keep more. `all` is an answer about all times. */
export function Memory({ about, all }: { about: About; all?: Stored }) {
    if (about.history !== 'memory') return null;
    return (
        <p class="note">
            The probe keeps the last {all && `${count(all.read)} `}ended flows in memory
            {about.from_ns !== null && `, since ${instant(about.from_ns / 1e9)}`}. Start it with{' '}
            <code>-o parquet:FOLDER</code> to keep more.
        </p>
    );
}

/** What a running probe has, and its views of ended flows do not. */
export const Unended = ({ about }: { about: About }) =>
    about.mode === 'probe' && (
        <p class="note">
            Flows that are <a href={link('flows')}>still open</a> are not counted here, nor are questions that wait for their answer
            {about.history === 'store' && ', nor what has ended since the store wrote its last file (interval=)'}.
        </p>
    );

/** In place of a view, where no ended flows are kept. */
export const Nothing = () => (
    <p>
        This probe keeps no ended flows. Start it with <code>-o parquet:FOLDER</code> to store them.
    </p>
);

/** What a file has, and from where. */
const Facts = ({ facts }: { facts: [string, string][] }) => (
    <dl class="facts" aria-label="This file">
        {facts.map(([name, text]) => (
            <div key={name}>
                <dt>{name}</dt>
                <dd>{shown(text)}</dd>
            </div>
        ))}
    </dl>
);

/** Time and filter of a view. `shown` is the time that is shown, where the range does not say it. */
export function ScopeBars({ scope, shown: time }: { scope: Scope; shown: Span | undefined }) {
    if (scope.about.facts) return <Facts facts={scope.about.facts} />;
    return (
        <>
            <RangeBar {...scope} shown={scope.span ?? time} />
            <Filter {...scope} go={(where) => scope.go({ where })} />
        </>
    );
}

interface Answered {
    answer: Stored | undefined;
    problem: Problem | undefined;
}

/** Whether there is no answer, or not all of it. */
export const isDoubtful = ({ answer, problem }: Answered): boolean =>
    problem !== undefined || (answer !== undefined && !(answer.complete && answer.problems.length === 0));

/** Why there is no answer, or what it does not have. */
export function Doubts({ answer, problem }: Answered) {
    if (problem) return <Mistake {...problem} />;
    if (!answer || !isDoubtful({ answer, problem })) return null;
    return (
        <Alert>
            {answer.problems.length > 0 ? (
                <details>
                    <summary>Some files cannot be read to their ends.</summary>
                    <ul>
                        {answer.problems.map((problem) => (
                            <li key={problem}>{problem}</li>
                        ))}
                    </ul>
                </details>
            ) : (
                <p>Not all flows were read in time: the figures are those of {many(answer.read, 'flow')}. Choose a shorter time.</p>
            )}
        </Alert>
    );
}

/** That no flow is shown, and why. */
export function Empty({ scope }: { scope: Scope }) {
    const { where, range, go } = scope;
    return (
        <div class="empty" role="status">
            <p>
                {where ? 'The filter matches no flow of this range' : 'No flows in this range'}: {rangeText(range)}.
            </p>
            {range.from !== 'all' && (
                <button type="button" onClick={() => go({ from: 'all', to: '', was: '' })}>
                    Look at all times
                </button>
            )}{' '}
            {where && (
                <button type="button" onClick={() => go({ where: '' })}>
                    Clear the filter
                </button>
            )}
        </div>
    );
}
