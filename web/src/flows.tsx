// Flows, current or stored: a filter, chosen columns, pages, and all fields of one flow.
import { useMemo, useRef, useState } from 'preact/hooks';
import type { Field, Flow, Flows as Found, StoredFlows } from './api';
import { type Question, useAnswers } from './ask';
import { Filter } from './filter';
import { Details } from './flow';
import { NAMED_FIELDS, Named, itemOf, useNames } from './names';
import { Mistake, useMore } from './parts';
import { RangeBar, type Span, parametersOf } from './range';
import { Doubts, Empty, Memory, Nothing, type Scope, type ViewProps, useScope } from './scope';
import { count, many, shown, value, zone } from './text';

const DEFAULT_FIELDS = 'start_time,src_ip,src_port,dst_ip,dst_port,protocol,application,packets,bytes,duration_ns';
const DEFAULT_TOP = '50';
const TOPS = ['20', '50', '200', '1000'];
/** By these a flow is found again, whatever columns are shown. */
export const IDENTITY = ['start_time', 'community_id', 'src_ip', 'src_port', 'dst_ip', 'dst_port'];
/** What is needed of each flow, beside its columns. */
const NEEDED = [...IDENTITY, 'end_time'];
/** The probe looks through no more flows for a page. */
const MAX_OFFSET = 100_000;

/** What is asked. */
export interface Asked {
    /** Of the store, not of the flow cache. */
    isStored: boolean;
    where: string;
    sort: string;
    top: string;
    fields: string;
    /** From 0. */
    page: number;
}

const defaultSort = (isStored: boolean) => (isStored ? 'start_time' : 'bytes');

function asked({ settings, about }: Scope): Asked {
    const of = (name: string, otherwise: string) => settings.get(name) || otherwise;
    const isStored = about.mode === 'view' || settings.get('of') === 'stored';
    return {
        isStored,
        where: of('where', ''),
        sort: of('sort', defaultSort(isStored)),
        top: of('top', DEFAULT_TOP),
        fields: of('fields', DEFAULT_FIELDS),
        page: isStored ? Math.max(0, Math.floor(Number(of('page', '0'))) || 0) : 0,
    };
}

/** Changes what is asked: the URL has what differs from the view as it opens. */
function changer(scope: Scope, now: Asked) {
    return (change: Partial<Asked>) => {
        // Another order or filter begins at its first page.
        const { isStored, where, sort, top, fields, page } = { ...now, page: 0, ...change };
        const isDefault = sort === defaultSort(isStored) || isStored !== now.isStored;
        scope.go({
            of: isStored ? 'stored' : '',
            where,
            sort: isDefault ? '' : sort,
            top: top === DEFAULT_TOP ? '' : top,
            fields: fields === DEFAULT_FIELDS ? '' : fields,
            page: page > 0 ? String(page) : '',
        });
    };
}

type Change = ReturnType<typeof changer>;

function Columns({ fields, now, change }: { fields: Field[]; now: Asked; change: Change }) {
    const [search, setSearch] = useState('');
    const [isOpen, open] = useState(false);
    const chosen = now.fields.split(',');
    const matching = fields.filter(({ name, meaning }) => `${name} ${meaning}`.toLowerCase().includes(search.toLowerCase()));
    const toggle = (name: string, isChosen: boolean) => {
        const names = isChosen ? [...chosen, name] : chosen.filter((other) => other !== name);
        if (names.length > 0) change({ fields: names.join(',') });
    };
    return (
        <details class="columns" onToggle={(event) => open(event.currentTarget.open)}>
            <summary>Columns ({chosen.length})</summary>
            <label>
                Find a field <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
            </label>{' '}
            <button type="button" onClick={() => change({ fields: DEFAULT_FIELDS })}>
                Default columns
            </button>
            <div class="choices" role="group" aria-label="Columns" tabIndex={0}>
                {(isOpen ? matching : []).map(({ name, meaning }) => (
                    <label key={name} title={meaning}>
                        <input
                            type="checkbox"
                            checked={chosen.includes(name)}
                            onChange={(event) => toggle(name, event.currentTarget.checked)}
                        />{' '}
                        {name}
                    </label>
                ))}
            </div>
        </details>
    );
}

const isNumeric = (field: Field | undefined) => field?.type === 'integer' || field?.type === 'number';
const isSortable = (field: Field | undefined) => isNumeric(field) || field?.type === 'time';

function FlowTable(props: { flows: Flow[]; fields: Map<string, Field>; now: Asked; change: Change; choose: (flow: Flow) => void }) {
    const { flows, fields, now, change, choose } = props;
    const names = now.fields.split(',').filter((name) => fields.has(name));
    const [sorted, direction] = now.sort.split(':');
    const named = names.filter((name) => NAMED_FIELDS.includes(name));
    const nameOf = useNames(flows.flatMap((flow) => named.map((name) => itemOf(flow, name))));
    const order = (name: string) => (name !== sorted ? undefined : direction === 'asc' ? 'ascending' : 'descending');
    const sort = (name: string) => change({ sort: order(name) === 'descending' ? `${name}:asc` : name });
    const part = useMore<HTMLDivElement>();
    return (
        <div ref={part} class="scroll" role="region" aria-label="Flows" tabIndex={0}>
            <table class="flows">
                <caption class="unseen">Flows; a button in each row shows all fields of the flow</caption>
                <thead>
                    <tr>
                        {names.map((name) => (
                            <th scope="col" key={name} aria-sort={order(name)} class={isNumeric(fields.get(name)) ? 'number' : undefined}>
                                {isSortable(fields.get(name)) ? (
                                    <button type="button" class="plain" onClick={() => sort(name)}>
                                        {name}
                                        {order(name) && (order(name) === 'ascending' ? ' ▲' : ' ▼')}
                                    </button>
                                ) : (
                                    name
                                )}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {flows.map((flow, row) => (
                        <tr key={row} onClick={() => choose(flow)}>
                            {names.map((name, column) => {
                                const text = value(flow[name], fields.get(name));
                                const known = nameOf(itemOf(flow, name));
                                return (
                                    <td key={name} class={isNumeric(fields.get(name)) ? 'number' : undefined}>
                                        {column > 0 ? (
                                            <Named text={text} name={known} />
                                        ) : (
                                            <button
                                                type="button"
                                                class="plain"
                                                aria-label={`${text}${known ? ` ${shown(known)}` : ''}: all fields of this flow`}
                                                onClick={(event) => {
                                                    event.stopPropagation();
                                                    choose(flow);
                                                }}
                                            >
                                                <Named text={text} name={known} />
                                            </button>
                                        )}
                                    </td>
                                );
                            })}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

/** Current or stored flows. */
function Switch({ now, change }: { now: Asked; change: Change }) {
    const choices: [string, boolean][] = [
        ['Current', false],
        ['Stored', true],
    ];
    return (
        <div class="choice" role="group" aria-label="Which flows">
            {choices.map(([words, isStored]) => (
                <button type="button" key={words} aria-pressed={now.isStored === isStored} onClick={() => change({ isStored })}>
                    {words}
                </button>
            ))}
        </div>
    );
}

/** How many flows there are, and the pages of stored ones. Of these, flows of other times were read, too, unless all are asked for. */
function Pages({ found, isOfTime, now, change }: { found: Found | StoredFlows; isOfTime: boolean; now: Asked; change: Change }) {
    const searched = 'read' in found ? found.read : found.searched;
    const first = now.page * Number(now.top);
    const last = first + found.flows.length;
    const hasMore = found.matching > last;
    const isDeep = last + Number(now.top) > MAX_OFFSET;
    const which = now.page > 0 ? `those from ${count(first + 1)} to ${count(last)}` : `the first ${count(last)}`;
    return (
        <>
            <p role="status">
                {isOfTime ? `${many(found.matching, 'matching flow')} in this time` : `${count(found.matching)} of ${count(searched)} flows match`}
                {(hasMore || now.page > 0) && `; ${which} are shown`}.{!now.isStored && !found.complete && ' Not all flows were looked at in time.'}
            </p>
            {now.isStored && (hasMore || now.page > 0) && (
                <nav class="pages" aria-label="Pages">
                    <button type="button" disabled={now.page === 0} onClick={() => change({ page: now.page - 1 })}>
                        Previous page
                    </button>{' '}
                    Page {count(now.page + 1)} of {count(Math.max(now.page + 1, Math.ceil(found.matching / Number(now.top))))}{' '}
                    <button type="button" disabled={!hasMore || isDeep} onClick={() => change({ page: now.page + 1 })}>
                        Next page
                    </button>
                    {hasMore && isDeep && ' Pages end here: choose a filter or a shorter time for the others.'}
                </nav>
            )}
        </>
    );
}

function question(scope: Scope, now: Asked): Question {
    const { where, sort, top } = now;
    const fields = [...new Set([...now.fields.split(','), ...NEEDED])].join(',');
    if (!now.isStored) return { path: '/flows', parameters: { where, sort, top, fields } };
    const offset = now.page > 0 ? String(now.page * Number(top)) : undefined;
    return { path: '/stored', parameters: { ...parametersOf(scope.span), where, sort, top, fields, offset } };
}

/** The time that the flows of a page are placed in. */
function spanOf(scope: Scope, flows: Flow[], isStored: boolean): Span {
    const times = flows.flatMap(({ start_time, end_time }) => [Date.parse(String(start_time)), Date.parse(String(end_time))]);
    if (isStored && scope.span) return scope.span;
    return { from_ms: Math.min(...times), to_ms: Math.max(...times) };
}

/** A flow as the URL has it. */
const nameOf = (flow: Flow): string => [flow.start_time, flow.src_ip, flow.src_port, flow.dst_ip, flow.dst_port].join('~');

/** The flow whose fields are shown: the URL has its name. */
function useChosen({ settings, go }: Scope, flows: Flow[]) {
    const [last, setLast] = useState<Flow>();
    const name = settings.get('flow') ?? '';
    const chosen = name === '' ? undefined : [...(last ? [last] : []), ...flows].find((flow) => nameOf(flow) === name);
    const choose = (flow: Flow | undefined) => {
        setLast(flow);
        go({ flow: flow ? nameOf(flow) : '' });
    };
    // A page that was opened with this URL keeps the flow when its figures change.
    if (chosen && chosen !== last) setLast(chosen);
    return { chosen, choose, isMissing: name !== '' && !chosen };
}

export function Flows(props: ViewProps) {
    const scope = useScope('flows', props);
    const now = asked(scope);
    const change = changer(scope, now);
    const isKept = scope.about.history !== 'none';
    const questions = now.isStored && !isKept ? [] : [question(scope, now)];
    const { answers, problems, isAsking } = useAnswers<Found | StoredFlows>(questions, scope.round);
    const [found] = answers;
    const { chosen, choose, isMissing } = useChosen(scope, found?.flows ?? []);
    // Rows of an earlier question are described by it, until there are others.
    const answered = useRef(now);
    if (!isAsking) answered.current = now;
    const problem = isAsking ? undefined : problems[0];
    const isEmpty = !isAsking && now.isStored && found?.matching === 0;
    const byName = useMemo(() => new Map(scope.fields.map((field) => [field.name, field])), [scope.fields]);
    return (
        <>
            <h1>Flows</h1>
            {scope.about.mode === 'probe' && <Switch now={now} change={change} />}
            <p class="note">
                {now.isStored ? 'Records of flows that have ended, which began in this time.' : 'Flows that have not ended, with their figures so far.'}{' '}
                Times are in {zone()}. The filter is that of <code>--where</code>.
            </p>
            {now.isStored && <Memory about={scope.about} />}
            {now.isStored && isKept && <RangeBar {...scope} go={(to) => scope.go({ ...to, page: '' })} shown={scope.span} />}
            {now.isStored && !isKept && <Nothing />}
            <Filter where={now.where} fields={scope.fields} go={(where) => change({ where })} askAgain={scope.askAgain}>
                <label>
                    Rows{' '}
                    <select value={now.top} onChange={(event) => change({ top: event.currentTarget.value })}>
                        {[...new Set([...TOPS, now.top])].map((top) => (
                            <option key={top}>{top}</option>
                        ))}
                    </select>
                </label>{' '}
            </Filter>
            <Columns fields={scope.fields} now={now} change={change} />
            {problem && <Mistake {...problem} />}
            {!problem && found && 'read' in found && !isAsking && <Doubts answer={found} problem={undefined} />}
            <div aria-busy={isAsking}>
                {isAsking && !found && <p>Asking …</p>}
                {isEmpty && found && 'read' in found && <Empty scope={scope} />}
                {found && !problem && !isEmpty && (
                    <>
                        <Pages found={found} isOfTime={answered.current.isStored && scope.span !== undefined} now={answered.current} change={change} />
                        <FlowTable flows={found.flows} fields={byName} now={answered.current} change={change} choose={choose} />
                    </>
                )}
            </div>
            {isMissing && found && !isAsking && <p class="note">The flow of this address is not among these rows.</p>}
            {chosen && (
                <Details
                    flow={chosen}
                    about={scope.about}
                    fields={byName}
                    now={now}
                    span={spanOf(scope, found?.flows ?? [chosen], now.isStored)}
                    close={() => choose(undefined)}
                />
            )}
        </>
    );
}
