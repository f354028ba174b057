// Names of hosts and services beside addresses and ports: what a probe or a view with --names knows of what is shown.
import { useEffect, useState } from 'preact/hooks';
import { type Flow, get } from './api';
import { shown } from './text';

/** Fields of addresses and of ports. */
const ADDRESSES = ['host', 'src_ip', 'dst_ip', 'client_ip', 'server_ip'];
const PORTS = ['src_port', 'dst_port', 'service_port'];
export const NAMED_FIELDS = [...ADDRESSES, ...PORTS];
/** Of one request, as the probe permits. */
const MAX_ASKED = 256;
/** Names that are kept, and for how long. */
const MAX_KNOWN = 20_000;
const AGE_MS = 60_000;
/** While stores are still read for names. */
const AGAIN_MS = 2000;

let isOn = false;
/** Names by address or port, empty where there is none, and when they were asked. */
const known = new Map<string, { name: string; asked: number }>();

/** From now on names are shown, or not. */
export function setNames(on: boolean) {
    isOn = on;
}

/** What is asked of a field of a flow or group: an address, or a port with its protocol, if that is there. Empty for none. */
export function itemOf(row: Flow, field: string): string {
    const value = row[field];
    if (value === null || value === undefined || !NAMED_FIELDS.includes(field)) return '';
    const protocol = row.protocol;
    return PORTS.includes(field) && typeof protocol === 'string' ? `${value}/${protocol.toLowerCase()}` : String(value);
}

/** Asks for names. False if some may be missing, because stores are still read for them. */
async function askFor(items: string[]): Promise<boolean> {
    const asked = Date.now();
    let isComplete = true;
    if (known.size > MAX_KNOWN) known.clear();
    for (let at = 0; at < items.length; at += MAX_ASKED) {
        const some = items.slice(at, at + MAX_ASKED);
        // Without an answer they have no names for a time.
        const answer = get<{ names: Record<string, string>; complete: boolean }>('/names', { of: some.join(',') });
        const { names, complete } = await answer.catch(() => ({ names: {} as Record<string, string>, complete: true }));
        isComplete &&= complete;
        for (const item of some) if (names[item] || complete) known.set(item, { name: names[item] ?? '', asked });
    }
    return isComplete;
}

/** The names of what is shown, which are asked for where they are not known. */
export function useNames(items: string[]): (item: string) => string | undefined {
    const [round, setRound] = useState(0);
    const isOld = (item: string) => item !== '' && Date.now() - (known.get(item)?.asked ?? 0) > AGE_MS;
    const key = isOn ? [...new Set(items)].filter(isOld).join(',') : '';
    useEffect(() => {
        if (key === '') return;
        let ended = false;
        let timer: number | undefined;
        void askFor(key.split(',')).then((isComplete) => {
            if (!ended) timer = setTimeout(() => setRound(round + 1), isComplete ? 0 : AGAIN_MS);
        });
        return () => {
            ended = true;
            clearTimeout(timer);
        };
    }, [key, round]);
    return (item) => (isOn && known.get(item)?.name) || undefined;
}

/** A text, and its name if there is one. Names are what others claim, so they stay text. */
export const Named = ({ text, name }: { text: string; name: string | undefined }) => (
    <>
        {text}
        {name && <span class="host-name"> {shown(name)}</span>}
    </>
);
