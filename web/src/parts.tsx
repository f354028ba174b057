// Parts that several views use.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Place } from './api';

/** Marks a part of the page that is wider than it can be, as long as there is more at its right. */
export function useMore<T extends HTMLElement>() {
    const part = useRef<T>(null);
    useEffect(() => {
        const of = part.current!;
        const mark = () => of.classList.toggle('more', of.scrollLeft + of.clientWidth < of.scrollWidth - 1);
        const sizes = new ResizeObserver(mark);
        [of, ...of.children].forEach((element) => sizes.observe(element));
        of.addEventListener('scroll', mark);
        return () => (sizes.disconnect(), of.removeEventListener('scroll', mark));
    }, []);
    return part;
}

/** A table that scrolls by itself where it is wider than the page. */
export function Table(props: {
    label: string;
    heads: ComponentChildren[];
    /** Columns that are aligned as numbers. */
    numbers?: number[];
    /** It has few columns, and is not stretched. */
    narrow?: boolean;
    /** The second column has bars, which are left out where there is no room. */
    hasBars?: boolean;
    children: ComponentChildren;
}) {
    const isNumber = (column: number) => (props.numbers?.includes(column) ? 'number' : undefined);
    const part = useMore<HTMLDivElement>();
    return (
        <div ref={part} class={props.narrow ? 'scroll narrow' : 'scroll'} role="region" aria-label={props.label} tabIndex={0}>
            <table class={props.hasBars ? 'with-bars' : undefined}>
                <caption class="unseen">{props.label}</caption>
                <thead>
                    <tr>
                        {props.heads.map((head, column) => (
                            <th scope="col" class={isNumber(column)} key={column}>
                                {head}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>{props.children}</tbody>
            </table>
        </div>
    );
}

/** A row of cells; the first is its heading. */
export function Row(props: { cells: ComponentChildren[]; numbers?: number[] }) {
    const [head, ...cells] = props.cells;
    return (
        <tr>
            <th scope="row">{head}</th>
            {cells.map((cell, at) => (
                <td class={props.numbers?.includes(at + 1) ? 'number' : undefined} key={at}>
                    {cell}
                </td>
            ))}
        </tr>
    );
}

/** A part of a whole, 0 to 1, beside its number. */
export function Bar({ share, isLoss }: { share: number; isLoss?: boolean }) {
    // What is there is seen, however little it is.
    const width = share > 0 ? Math.max(share * 100, 1) : 0;
    return (
        <div class="bar" aria-hidden="true">
            <div class={isLoss ? 'bad' : undefined} style={{ width: `${width}%` }} />
        </div>
    );
}

/** What is wrong, said to screen readers at once. */
export function Alert(props: { children: ComponentChildren }) {
    return (
        <div class="alert" role="alert">
            {props.children}
        </div>
    );
}

/** What the sentence says to the users of a shell. */
const LIST_OF_FIELDS = ' (weir fields lists all)';

/** A sentence, and the expression with the place marked. */
export function Mistake({ error, place }: { error: string; place?: Place }) {
    // Places are counted in characters, not in units of UTF-16.
    const characters = [...(place?.text ?? '')];
    const from = place?.before ?? 0;
    const to = from + (place?.length ?? 0);
    return (
        <Alert>
            <p>{error.replace(LIST_OF_FIELDS, '; the filter completes names while you write them')}</p>
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
