// Current flows: a filter, chosen columns, and all fields of one flow.
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Field, type Flow, type Flows as Found, type Place, Refusal, get } from './api';
import { Alert } from './parts';
import { link } from './route';
import { count, value, valueWithUnit } from './text';

const DEFAULT_FIELDS = 'start_time,src_ip,src_port,dst_ip,dst_port,protocol,application,packets,bytes,duration_ns';
const DEFAULT_SORT = 'bytes';
const DEFAULT_TOP = '50';
const TOPS = ['20', '50', '200', '1000'];
/** By these a flow is found again, whatever columns are shown. */
const IDENTITY = ['start_time', 'community_id', 'src_ip', 'src_port', 'dst_ip', 'dst_port'];
const GROUPS: [string, string][] = [
    ['meter', 'From the headers of packets'],
    ['tcp', 'TCP analysis'],
    ['inspection', 'Inspection of payload'],
    ['enrichment', 'Enrichment'],
];

interface Asked {
    where: string;
    sort: string;
    top: string;
    fields: string;
}

function asked(settings: URLSearchParams): Asked {
    const of = (name: string, otherwise: string) => settings.get(name) || otherwise;
    return {
        where: of('where', ''),
        sort: of('sort', DEFAULT_SORT),
        top: of('top', DEFAULT_TOP),
        fields: of('fields', DEFAULT_FIELDS),
    };
}

/** The settings that differ from those of the view, for the URL. */
function go(now: Asked, change: Partial<Asked>) {
    const { where, sort, top, fields } = { ...now, ...change };
    location.hash = link('flows', {
        where,
        sort: sort === DEFAULT_SORT ? '' : sort,
        top: top === DEFAULT_TOP ? '' : top,
        fields: fields === DEFAULT_FIELDS ? '' : fields,
    });
}

/** A sentence, and the expression with the place marked. */
function Mistake({ error, place }: { error: string; place: Place | undefined }) {
    // Places are counted in characters, not in units of UTF-16.
    const characters = [...(place?.text ?? '')];
    const from = place?.before ?? 0;
    const to = from + (place?.length ?? 0);
    return (
        <Alert>
            <p>{error}</p>
            {place && (
                <pre>
                    {characters.slice(0, from).join('')}
                    <mark>{characters.slice(from, to).join('') || ' '}</mark>
                    {characters.slice(to).join('')}
                </pre>
            )}
        </Alert>
    );
}

function Columns({ fields, now }: { fields: Field[]; now: Asked }) {
    const [search, setSearch] = useState('');
    const [isOpen, open] = useState(false);
    const chosen = now.fields.split(',');
    const matching = fields.filter(({ name, meaning }) => `${name} ${meaning}`.toLowerCase().includes(search.toLowerCase()));
    const toggle = (name: string, isChosen: boolean) => {
        const names = isChosen ? [...chosen, name] : chosen.filter((other) => other !== name);
        if (names.length > 0) go(now, { fields: names.join(',') });
    };
    return (
        <details class="columns" onToggle={(event) => open(event.currentTarget.open)}>
            <summary>Columns ({chosen.length})</summary>
            <label>
                Find a field <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
            </label>{' '}
            <button type="button" onClick={() => go(now, { fields: DEFAULT_FIELDS })}>
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

function FlowTable(props: { found: Found; fields: Map<string, Field>; now: Asked; choose: (flow: Flow) => void }) {
    const { found, fields, now, choose } = props;
    const names = now.fields.split(',').filter((name) => fields.has(name));
    const [sorted, direction] = now.sort.split(':');
    const order = (name: string) => (name !== sorted ? undefined : direction === 'asc' ? 'ascending' : 'descending');
    const sort = (name: string) => go(now, { sort: order(name) === 'descending' ? `${name}:asc` : name });
    return (
        <div class="scroll" role="region" aria-label="Flows" tabIndex={0}>
            <table class="flows">
                <caption class="unseen">Flows; a button in each row shows all fields of the flow</caption>
                <thead>
                    <tr>
                        {names.map((name) => (
                            <th scope="col" key={name} aria-sort={order(name)} class={isNumeric(fields.get(name)) ? 'number' : undefined}>
                                {isNumeric(fields.get(name)) ? (
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
                    {found.flows.map((flow, row) => (
                        <tr key={row} onClick={() => choose(flow)}>
                            {names.map((name, column) => {
                                const text = value(flow[name], fields.get(name));
                                return (
                                    <td key={name} class={isNumeric(fields.get(name)) ? 'number' : undefined}>
                                        {column > 0 ? (
                                            text
                                        ) : (
                                            <button
                                                type="button"
                                                class="plain"
                                                aria-label={`${text}: all fields of this flow`}
                                                onClick={(event) => {
                                                    event.stopPropagation();
                                                    choose(flow);
                                                }}
                                            >
                                                {text}
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

/** The same flow with all its fields; undefined if it has ended meanwhile. */
async function wholeFlow(flow: Flow, now: Asked): Promise<Flow | undefined> {
    const id = flow.community_id;
    // Flows of layer 2 have no Community ID: they are found where they were found before.
    const by = id ? { community_id: String(id), top: '1000' } : { where: now.where, sort: now.sort, top: now.top };
    const { flows } = await get<Found>('/flows', { ...by, fields: 'all' });
    return flows.find((other) => IDENTITY.every((name) => other[name] === flow[name]));
}

function Details(props: { flow: Flow; fields: Map<string, Field>; now: Asked; close: () => void }) {
    const { flow, fields, now, close } = props;
    const dialog = useRef<HTMLDialogElement>(null);
    const [whole, setWhole] = useState<Flow>();
    const [problem, setProblem] = useState('');
    useEffect(() => {
        dialog.current?.showModal();
        wholeFlow(flow, now).then(
            (whole) => (whole ? setWhole(whole) : setProblem('This flow has ended meanwhile.')),
            (error) => setProblem(error instanceof Refusal ? error.message : 'The probe does not answer.'),
        );
    }, []);
    const of = (origin: string) =>
        Object.entries(whole ?? {}).filter(([name, of]) => of !== null && fields.get(name)?.origin === origin);
    const show = (name: string) => String(flow[name] ?? '');
    return (
        <dialog ref={dialog} onClose={close} aria-labelledby="flow-title">
            <form method="dialog">
                <button>Close</button>
            </form>
            <h2 id="flow-title">
                {show('src_ip')} to {show('dst_ip')}
            </h2>
            {problem && <Alert>{problem}</Alert>}
            {!problem && !whole && <p>Asking the probe …</p>}
            {whole &&
                GROUPS.filter(([origin]) => of(origin).length > 0).map(([origin, title]) => (
                    <section key={origin}>
                        <h3>{title}</h3>
                        <dl class="fields">
                            {of(origin).map(([name, of]) => (
                                <div key={name}>
                                    <dt>{name}</dt>
                                    <dd>
                                        <strong>{valueWithUnit(of, fields.get(name))}</strong>{' '}
                                        <span class="note">{fields.get(name)?.meaning.replaceAll('`', '')}</span>
                                    </dd>
                                </div>
                            ))}
                        </dl>
                    </section>
                ))}
            {whole && <p class="note">Fields that do not apply to this flow are left out.</p>}
        </dialog>
    );
}

function Filter({ now, ask }: { now: Asked; ask: () => void }) {
    const [text, setText] = useState(now.where);
    useEffect(() => setText(now.where), [now.where]);
    const submit = (event: Event) => {
        event.preventDefault();
        // Without a change of the URL, the same is asked again.
        if (text === now.where) ask();
        else go(now, { where: text });
    };
    return (
        <form class="filter" onSubmit={submit}>
            <label>
                Filter{' '}
                <input
                    name="where"
                    value={text}
                    spellcheck={false}
                    autocomplete="off"
                    autocapitalize="off"
                    placeholder="dst port 443 and bytes > 1M"
                    onInput={(event) => setText(event.currentTarget.value)}
                />
            </label>{' '}
            <label>
                Rows{' '}
                <select value={now.top} onChange={(event) => go(now, { top: event.currentTarget.value })}>
                    {[...new Set([...TOPS, now.top])].map((top) => (
                        <option key={top}>{top}</option>
                    ))}
                </select>
            </label>{' '}
            <button>Search</button>
        </form>
    );
}

export function Flows({ settings }: { settings: URLSearchParams }) {
    const now = asked(settings);
    const [fields, setFields] = useState<Field[]>([]);
    const [found, setFound] = useState<Found>();
    const [problem, setProblem] = useState<{ error: string; place?: Place }>();
    const [round, setRound] = useState(0);
    const [chosen, choose] = useState<Flow>();
    const [isAsking, setAsking] = useState(false);
    useEffect(() => {
        let isOld = false;
        setAsking(true);
        const { where, sort, top } = now;
        const names = [...new Set([...now.fields.split(','), ...IDENTITY])].join(',');
        const all = fields.length > 0 ? fields : get<{ fields: Field[] }>('/fields').then((of) => of.fields);
        Promise.all([all, get<Found>('/flows', { where, sort, top, fields: names })])
            .then(([all, found]) => {
                if (isOld) return;
                setFields(all);
                setFound(found);
                setProblem(undefined);
            })
            .catch((error: unknown) => {
                if (isOld) return;
                const isRefusal = error instanceof Refusal;
                setProblem(isRefusal ? { error: error.message, place: error.place } : { error: 'The probe does not answer.' });
            })
            .finally(() => isOld || setAsking(false));
        return () => {
            isOld = true;
        };
    }, [now.where, now.sort, now.top, now.fields, round]);
    const byName = new Map(fields.map((field) => [field.name, field]));
    return (
        <>
            <h1>Flows</h1>
            <p class="note">
                Flows that have not ended, with their figures so far. Times are UTC. The filter is that of{' '}
                <code>--where</code>.
            </p>
            <Filter now={now} ask={() => setRound(round + 1)} />
            <Columns fields={fields} now={now} />
            {problem && <Mistake error={problem.error} place={problem.place} />}
            <div aria-busy={isAsking}>
                {found && !problem && (
                    <>
                        <p role="status">
                            {count(found.matching)} of {count(found.searched)} flows match
                            {found.matching > found.flows.length && `; the first ${count(found.flows.length)} are shown`}.
                            {!found.complete && ' Not all flows were looked at in time.'}
                        </p>
                        <FlowTable found={found} fields={byName} now={now} choose={choose} />
                    </>
                )}
            </div>
            {chosen && <Details flow={chosen} fields={byName} now={now} close={() => choose(undefined)} />}
        </>
    );
}
