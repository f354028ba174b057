// The page of a running probe: a heading with links, the state of the connection, and one of three views.
import 'uplot/dist/uPlot.min.css';
import './page.css';
import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Refusal, login } from './api';
import { Flows } from './flows';
import { Now } from './now';
import { Alert } from './parts';
import { Probe } from './probe';
import { useRoute } from './route';
import { clock } from './text';
import { useWatched } from './watch';

const VIEWS: [string, string][] = [
    ['now', 'Now'],
    ['flows', 'Flows'],
    ['probe', 'Probe'],
];

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

function Page() {
    const { view, settings } = useRoute();
    const [{ status, history, silentSince, needsToken, refusal }, ask] = useWatched();
    const title = VIEWS.find(([name]) => name === view)?.[1] ?? 'Now';
    useEffect(() => {
        document.title = `${title} – Weir`;
    }, [title]);
    return (
        <>
            <header>
                <a class="skip" href="#main" onClick={skip}>
                    Skip to the content
                </a>
                <span class="name">Weir</span>
                <nav aria-label="Views">
                    {VIEWS.map(([name, text]) => (
                        <a key={name} href={`#${name}`} aria-current={text === title ? 'page' : undefined}>
                            {text}
                        </a>
                    ))}
                </nav>
            </header>
            <main id="main" tabIndex={-1}>
                {silentSince !== undefined && (
                    <Alert>
                        The probe has not answered since {clock(silentSince / 1000)} UTC. What you see is from before; the
                        page asks again every second.
                    </Alert>
                )}
                {needsToken && <Login entered={ask} />}
                {!needsToken && refusal && <Alert>{refusal}</Alert>}
                {!needsToken && !status && silentSince === undefined && <p>Asking the probe …</p>}
                {!needsToken && status && (
                    <>
                        {title === 'Now' && <Now status={status} history={history} />}
                        {title === 'Flows' && <Flows settings={settings} />}
                        {title === 'Probe' && <Probe status={status} />}
                    </>
                )}
            </main>
        </>
    );
}

render(<Page />, document.getElementById('page')!);
