// The line for a filter, which completes names of fields.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Field } from './api';
import { nameBefore } from './where';

/** Words of filters that are no fields of /fields (docs/views.md). */
const WORDS: [string, string][] = [
    ['host', 'Address of either side.'],
    ['port', 'Port of either side.'],
    ['net', 'Prefix of either side: net 10.0.0.0/8.'],
    ['src', 'Before host, net or port: of the initiator.'],
    ['dst', 'Before host, net or port: of the responder.'],
    ['country', 'Country of either side.'],
    ['as', 'Autonomous system of either side.'],
    ['flags', 'TCP flags of both directions.'],
    ['vlan', 'VLAN of either direction.'],
    ['duration', 'Time from the first to the last packet; a number needs a unit.'],
    ['tcp', 'TCP only.'],
    ['udp', 'UDP only.'],
    ['icmp', 'ICMP only.'],
    ['not', 'Before a condition: all others.'],
    ['and', 'Both conditions.'],
    ['or', 'One of the conditions.'],
];
const MAX_CHOICES = 10;

/** Fields that are those of the first answer of a flow, and what counts all of its answers. */
const OF_FIRST_ANSWERS: Record<string, string> = {
    http_status: 'http_4xx and http_5xx',
    dns_rcode: 'dns_nxdomain, dns_servfail, dns_refused and dns_other_errors',
};

function choices(fields: Field[], part: string): [string, string][] {
    const known = [...WORDS, ...fields.map(({ name, meaning }): [string, string] => [name, meaning.replaceAll('`', '')])];
    const lower = part.toLowerCase();
    const found = known.filter(([name]) => name.includes(lower) && name !== lower);
    // Names that begin so come first.
    return found.sort(([one], [other]) => +other.startsWith(lower) - +one.startsWith(lower)).slice(0, MAX_CHOICES);
}

/** A filter, its button, what else a view has in this line, and a note about fields of the filter. */
export function Filter(props: {
    where: string;
    fields: Field[];
    /** Changes the filter. */
    go: (where: string) => void;
    /** Asks for the same once more. */
    askAgain: () => void;
    children?: ComponentChildren;
}) {
    const { where, fields, go, askAgain } = props;
    const input = useRef<HTMLInputElement>(null);
    const [text, setText] = useState(where);
    const [place, setPlace] = useState<number>();
    const [active, setActive] = useState(-1);
    useEffect(() => setText(where), [where]);
    const start = place === undefined ? undefined : nameBefore(text, place);
    const offered = place === undefined || start === undefined ? [] : choices(fields, text.slice(start, place));
    const close = () => (setPlace(undefined), setActive(-1));
    const complete = (name: string) => {
        const before = `${text.slice(0, start)}${name} `;
        setText(before + text.slice(place).trimStart());
        close();
        // Behind the name, when the text is there.
        setTimeout(() => input.current?.setSelectionRange(before.length, before.length));
    };
    const submit = (event: Event) => {
        event.preventDefault();
        close();
        // Without a change of the URL, the same is asked again.
        if (text.trim() === where) askAgain();
        else go(text.trim());
    };
    const keys = (event: KeyboardEvent) => {
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        const chosen = offered[active];
        if (event.key === 'Escape') close();
        else if (step && offered.length > 0) setActive((active + step + offered.length + (active < 0 && step < 0 ? 1 : 0)) % offered.length);
        else if (event.key === 'Enter' && chosen) complete(chosen[0]);
        else return;
        event.preventDefault();
    };
    return (
        <>
            <form class="filter" role="search" onSubmit={submit}>
                <div class="line">
                    <label>
                        Filter{' '}
                        <input
                            ref={input}
                            name="where"
                            value={text}
                            spellcheck={false}
                            autocomplete="off"
                            autocapitalize="off"
                            placeholder="dst port 443 and bytes > 1M"
                            role="combobox"
                            aria-autocomplete="list"
                            aria-expanded={offered.length > 0}
                            aria-controls="choices"
                            aria-activedescendant={active >= 0 && active < offered.length ? `choice-${active}` : undefined}
                            onInput={(event) => {
                                setText(event.currentTarget.value);
                                setPlace(event.currentTarget.selectionStart ?? undefined);
                                setActive(-1);
                            }}
                            onKeyDown={keys}
                            onBlur={close}
                        />
                    </label>
                    <ul id="choices" role="listbox" aria-label="Fields" hidden={offered.length === 0}>
                        {offered.map(([name, meaning], at) => (
                            <li
                                key={name}
                                id={`choice-${at}`}
                                role="option"
                                aria-selected={at === active}
                                // The line keeps the focus.
                                onMouseDown={(event) => (event.preventDefault(), complete(name))}
                            >
                                <b>{name}</b> <span class="note">{meaning}</span>
                            </li>
                        ))}
                    </ul>
                </div>{' '}
                {props.children}
                <button>Search</button>
                {where && (
                    <button type="button" onClick={() => go('')}>
                        Clear
                    </button>
                )}
            </form>
            {Object.entries(OF_FIRST_ANSWERS).map(
                ([name, all]) =>
                    new RegExp(`\\b${name}\\b`).test(where) && (
                        <p class="note" key={name}>
                            {name} is that of the first answer of a flow; {all} count all.
                        </p>
                    ),
            )}
        </>
    );
}
