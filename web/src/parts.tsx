// Parts that several views use.
import type { ComponentChildren } from 'preact';

/** A table that scrolls by itself where it is wider than the page. */
export function Table(props: {
    label: string;
    heads: ComponentChildren[];
    /** Columns that are aligned as numbers. */
    numbers?: number[];
    /** It has few columns, and is not stretched. */
    narrow?: boolean;
    children: ComponentChildren;
}) {
    const isNumber = (column: number) => (props.numbers?.includes(column) ? 'number' : undefined);
    return (
        <div class={props.narrow ? 'scroll narrow' : 'scroll'} role="region" aria-label={props.label} tabIndex={0}>
            <table>
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

/** What is wrong, said to screen readers at once. */
export function Alert(props: { children: ComponentChildren }) {
    return (
        <div class="alert" role="alert">
            {props.children}
        </div>
    );
}
