// The page of a probe or of stored flows: a heading with links, the state of the connection, and one of the views.
import 'uplot/dist/uPlot.min.css';
import './page.css';
import { Fragment, render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { type About, type Field, Refusal, get, login, logout } from './api';
import { Flows } from './flows';
import { Now } from './now';
import { setNames } from './names';
import { Alert } from './parts';
import { Probe } from './probe';
import { Quality } from './quality';
import { link, useRoute } from './route';
import { clock, setLocal, shown, zone } from './text';
import { Traffic } from './traffic';
import { useWatched } from './watch';

const VIEWS: [string, string][] = [
    ['now', 'Now'],
    ['traffic', 'Traffic'],
    ['quality', 'Quality'],
    ['flows', 'Flows'],
    ['probe', 'Probe'],
];
/** Those that need a running probe. */
const OF_A_PROBE = ['now', 'probe'];
/** Those that a file has. */
const OF_A_FILE = ['traffic', 'quality'];
/** Settings that views of flows have in common. */
const SHARED = ['where', 'from', 'to', 'was'];

function Login({ entered }: { entered: () => void }) {
    const [problem, setProblem] = useState('');
    const submit = (event: Event & { currentTarget: HTMLFormElement }) => {
        event.preventDefault();
        const token = new FormData(event.currentTarget).get('token');
        login(String(token).trim()).then(entered, (error: unknown) => {
            const isWrong = error instanceof Refusal && error.status === 401;
            const other = error instanceof Refusal ? error.message : 'The probe does not answer.';
            setProblem(isWrong ? 'This is not the token of the probe.' : other);
        });
    };
    return (
        <form class="login" onSubmit={submit}>
            <h1>Token</h1>
            <p>This probe answers only those who have its token: the line in the file of --token-file.</p>
            <label>
                Token <input name="token" type="password" autocomplete="current-password" required />
            </label>{' '}
            <button>Enter</button>
            {problem && <Alert>{problem}</Alert>}
        </form>
    );
}

/** The fragment of the URL has the view, so the link only moves the focus. */
function skip(event: Event) {
    event.preventDefault();
    document.getElementById('main')?.focus();
}

/** The catalogue of fields, which does not change: asked until it is there. */
function useFields(isReady: boolean, about: About | undefined): Field[] {
    const [fields, setFields] = useState<Field[]>([]);
    useEffect(() => {
        if (isReady && fields.length === 0) get<{ fields: Field[] }>('/fields').then(({ fields }) => setFields(fields), () => undefined);
    }, [isReady, about]);
    return fields;
}

/** The views that there are. */
const viewsOf = (about: About | undefined) =>
    VIEWS.filter(([name]) => (about?.mode === 'file' ? OF_A_FILE.includes(name) : about?.mode !== 'view' || !OF_A_PROBE.includes(name)));

/** The last name of a path. */
const lastName = (path: string): string => path.replace(/\/+$/, '').split('/').at(-1) || path;

/** Ends the session, and forgets all that the page has. */
function LogOut() {
    const [problem, setProblem] = useState('');
    const leave = () => {
        logout().then(
            () => location.reload(),
            (error: unknown) => setProblem(error instanceof Refusal ? error.message : 'The probe does not answer.'),
        );
    };
    return (
        <>
            <button type="button" onClick={leave}>
                Log out
            </button>
            {problem && <Alert>You are not logged out: {problem}</Alert>}
        </>
    );
}

/** What holds for all views: the zone of times, and names of hosts. */
function Choices({ about, current, settings }: { about: About; current: string; settings: URLSearchParams }) {
    const set = (change: Record<string, string>) => {
        location.hash = link(current, { ...Object.fromEntries(settings), ...change });
    };
    const isLocal = settings.get('zone') === 'local';
    const hasNames = settings.get('names') === 'on';
    return (
        <>
            <div class="choice" role="group" aria-label="Times">
                <button type="button" aria-pressed={!isLocal} onClick={() => set({ zone: '' })}>
                    UTC
                </button>
                <button type="button" aria-pressed={isLocal} onClick={() => set({ zone: 'local' })}>
                    Local time
                </button>
            </div>
            {about.names && (
                <button type="button" aria-pressed={hasNames} onClick={() => set({ names: hasNames ? '' : 'on' })}>
                    Names
                </button>
            )}
        </>
    );
}

function Heading({ about, current, settings }: { about: About | undefined; current: string; settings: URLSearchParams }) {
    const shared = Object.fromEntries(SHARED.map((name) => [name, settings.get(name) ?? '']));
    return (
        <header>
            <a class="skip" href="#main" onClick={skip}>
                Skip to the content
            </a>
            <span class="name">Weir</span>
            <nav aria-label="Views">
                {viewsOf(about).map(([name, text]) => (
                    <a key={name} href={link(name, OF_A_PROBE.includes(name) ? {} : shared)} aria-current={name === current ? 'page' : undefined}>
                        {text}
                    </a>
                ))}
            </nav>
            {about && about.mode !== 'probe' && (
                <span class="inputs" title={shown(about.inputs.join(', '))}>
                    {shown(about.inputs.map(lastName).join(', '))}
                </span>
            )}
            {about && <Choices about={about} current={current} settings={settings} />}
            {about?.session && <LogOut />}
        </header>
    );
}

function Page() {
    const { view, settings } = useRoute();
    const times = settings.get('zone') === 'local' ? 'local' : 'UTC';
    setLocal(times === 'local');
    const [{ about, status, history, restarted, returns, silentSince, needsToken, refusal }, ask] = useWatched();
    setNames(settings.get('names') === 'on' && about?.names === true);
    const isView = about !== undefined && about.mode !== 'probe';
    const views = viewsOf(about);
    const [current, title] = views.find(([name]) => name === view) ?? views[0]!;
    const isReady = !needsToken && about !== undefined && (isView || status !== undefined);
    const fields = useFields(isReady, about);
    useEffect(() => {
        document.title = `${title} – Weir`;
    }, [title]);
    const missing = VIEWS.find(([name]) => name === view && name !== current && location.hash.startsWith(`#${name}`));
    return (
        <>
            <Heading about={needsToken ? undefined : about} current={current} settings={settings} />
            <main id="main" tabIndex={-1}>
                {silentSince !== undefined && (
                    <Alert>
                        {isView ? 'Weir' : 'The probe'} has not answered since {clock(silentSince / 1000)} {zone()}. What you see is from
                        before; the page asks again every second.
                    </Alert>
                )}
                {needsToken && <Login entered={ask} />}
                {!needsToken && refusal && <Alert>{refusal}</Alert>}
                {!needsToken && !isReady && silentSince === undefined && <p>Asking the probe …</p>}
                {isReady && silentSince === undefined && status && status.not_ready.length > 0 && (
                    <Alert>The probe is not ready: {status.not_ready.map(shown).join('; ')}.</Alert>
                )}
                {isReady && missing && (
                    <p class="note">
                        {missing[1]} needs {about.mode === 'file' ? 'weir view or a running probe' : 'a running probe'}. This is {title}.
                    </p>
                )}
                {/* Another zone draws everything again. */}
                <Fragment key={times}>
                    {isReady && status && current === 'now' && <Now status={status} history={history} restarted={restarted} />}
                    {isReady && current === 'traffic' && <Traffic settings={settings} about={about} fields={fields} returns={returns} />}
                    {isReady && current === 'quality' && <Quality settings={settings} about={about} fields={fields} returns={returns} />}
                    {isReady && current === 'flows' && <Flows settings={settings} about={about} fields={fields} returns={returns} />}
                    {isReady && status && current === 'probe' && <Probe status={status} />}
                </Fragment>
            </main>
        </>
    );
}

render(<Page />, document.getElementById('page')!);
