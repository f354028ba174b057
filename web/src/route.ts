// The view and its settings in the fragment of the URL, which no server sees: #flows?where=port+53
import { useEffect, useState } from 'preact/hooks';

export interface Route {
    view: string;
    settings: URLSearchParams;
}

/** What the URL has now. */
export function parse(): Route {
    const [view = '', settings = ''] = location.hash.slice(1).split(/\?(.*)/s);
    return { view: view || 'now', settings: new URLSearchParams(settings) };
}

/** Settings of all views, which a link keeps unless it changes them: the zone of times, and whether there are names. */
const KEPT = ['zone', 'names'];

export const link = (view: string, settings: Record<string, string> = {}): string => {
    const now = parse().settings;
    const kept = Object.fromEntries(KEPT.map((name) => [name, now.get(name) ?? '']));
    const given = new URLSearchParams(Object.entries({ ...kept, ...settings }).filter(([, value]) => value));
    return given.size ? `#${view}?${given}` : `#${view}`;
};

export function useRoute(): Route {
    const [route, setRoute] = useState(parse);
    useEffect(() => {
        const changed = () => setRoute(parse());
        addEventListener('hashchange', changed);
        return () => removeEventListener('hashchange', changed);
    }, []);
    return route;
}
