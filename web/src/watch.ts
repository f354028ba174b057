// What answers, and the state of a probe, asked once a second as long as the page is seen. A view of stored flows has no
// state: it is only asked whether it is there.
import { useEffect, useState } from 'preact/hooks';
import { type About, type History, Refusal, type Status, get } from './api';
import { isFile } from './file';

const INTERVAL_MS = 1000;
/** What is kept changes slowly. */
const ABOUT_INTERVAL_MS = 5000;
/** Seconds that are kept, as in the probe. */
const MAX_SAMPLES = 3600;

export interface Watched {
    about?: About;
    status?: Status;
    history?: History;
    /** When that was asked, ms since 1970. */
    askedAbout?: number;
    /** Since when the probe does not answer, ms since 1970. */
    silentSince?: number;
    /** When the probe started, if it has restarted since the page was opened, ms since 1970. */
    restarted?: number;
    /** How often it has answered again after it did not. */
    returns: number;
    /** When the probe had started, as it said before it wanted the token, ms since 1970. */
    started_ms?: number;
    /** The probe wants the token. */
    needsToken: boolean;
    /** What it says instead of its status. */
    refusal?: string;
}

function joined(earlier: History, later: History): History {
    // The clock of the probe was set back: it has begun a new history.
    if ((later.time_ms[0] ?? Infinity) <= (earlier.time_ms.at(-1) ?? 0)) return later;
    const names = Object.keys(later) as (keyof History)[];
    return Object.fromEntries(
        names.map((name) => [name, [...earlier[name], ...later[name]].slice(-MAX_SAMPLES)]),
    ) as History;
}

async function next(before: Watched): Promise<Watched> {
    try {
        // A probe that was away may be another one, with another history.
        const isSame = before.silentSince === undefined && !before.needsToken;
        const isOld = !isSame || Date.now() - (before.askedAbout ?? 0) >= ABOUT_INTERVAL_MS;
        const about = before.about && !isOld ? before.about : await get<About>('/about');
        const askedAbout = isOld ? Date.now() : before.askedAbout;
        const isBack = before.silentSince !== undefined || before.refusal !== undefined;
        const returns = before.returns + (isBack ? 1 : 0);
        if (about.mode !== 'probe') return { about, askedAbout, returns, needsToken: false };
        const known = isSame ? before.history : undefined;
        const after = known?.time_ms.at(-1);
        const [status, later] = await Promise.all([
            get<Status>('/status'),
            get<History>('/history', { after: after?.toString() }),
        ]);
        const started = before.status?.started_ms ?? before.started_ms ?? status.started_ms;
        const isRestarted = started !== status.started_ms;
        const restarted = isRestarted ? status.started_ms : before.restarted;
        // The samples of another run are all later than those that are known.
        const history = known && !isRestarted ? joined(known, later) : later;
        return { about, askedAbout, status, history, restarted, returns, needsToken: false };
    } catch (error) {
        if (error instanceof Refusal) {
            // What it said before is for those who have the token. A restart ends the session: it is seen by the start.
            if (error.status === 401) return { needsToken: true, returns: before.returns, started_ms: before.status?.started_ms ?? before.started_ms };
            return { ...before, silentSince: undefined, needsToken: false, refusal: error.message };
        }
        return { ...before, silentSince: before.silentSince ?? Date.now(), refusal: undefined };
    }
}

/** The last answers, and a function that asks at once. */
export function useWatched(): [Watched, () => void] {
    const [watched, setWatched] = useState<Watched>({ needsToken: false, returns: 0 });
    const [round, setRound] = useState(0);
    useEffect(() => {
        let state = watched;
        let ended = false;
        let timer: number | undefined;
        const step = async () => {
            // A file in a tab that is not seen is asked once, too.
            if (!document.hidden || isFile) {
                state = await next(state);
                if (!ended) setWatched(state);
            }
            if (!ended && !isFile) timer = setTimeout(step, INTERVAL_MS);
        };
        void step();
        return () => {
            ended = true;
            clearTimeout(timer);
        };
    }, [round]);
    return [watched, () => setRound((round) => round + 1)];
}
