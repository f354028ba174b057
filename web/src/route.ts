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

export const link = (view: string, settings: Record<string, string> = {}): string => {
    const given = new URLSearchParams(Object.entries(settings).filter(([, value]) => value));
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
