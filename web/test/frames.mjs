// Frames of clients and servers, some with texts of an attacker in every field that traffic controls.

const MACS = Buffer.from('02000000000102000000000208 00'.replace(' ', ''), 'hex');

const u8 = (value) => Buffer.from([value]);
const u16 = (value) => Buffer.from([value >> 8, value & 255]);
const u32 = (value) => Buffer.from([value >>> 24, (value >> 16) & 255, (value >> 8) & 255, value & 255]);
const u24 = (value) => u32(value).subarray(1);
const text = (value) => Buffer.from(value, 'latin1');
const long = (body) => Buffer.concat([u16(body.length), body]);
const address = (value) => Buffer.from(value.split('.').map(Number));

function ip(protocol, source, destination, payload) {
    const head = [u8(0x45), u8(0), u16(20 + payload.length), u16(1), u16(0x4000), u8(64), u8(protocol), u16(0)];
    return Buffer.concat([MACS, ...head, address(source), address(destination), payload]);
}

export function udp([source, sourcePort], [destination, destinationPort], payload) {
    const head = [u16(sourcePort), u16(destinationPort), u16(8 + payload.length), u16(0)];
    return ip(17, source, destination, Buffer.concat([...head, payload]));
}

const [SYN, PSH_ACK, SYN_ACK, ACK] = [0x02, 0x18, 0x12, 0x10];

/** A segment of TCP. */
export function segment([from, fromPort], [to, toPort], seq, ack, flags, payload = Buffer.alloc(0)) {
    const head = [u16(fromPort), u16(toPort), u32(seq), u32(ack), u8(0x50), u8(flags), u16(65000), u32(0)];
    return ip(6, from, to, Buffer.concat([...head, payload]));
}

/** A connection with a message of the client and one of the server. */
export const tcp = (client, server, request, response) => [
    segment(client, server, 100, 0, SYN),
    segment(server, client, 500, 101, SYN_ACK),
    segment(client, server, 101, 501, ACK),
    segment(client, server, 101, 501, PSH_ACK, request),
    segment(server, client, 501, 101 + request.length, PSH_ACK, response),
];

export function http(host, path, agent) {
    const request = `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nUser-Agent: ${agent}\r\n\r\n`;
    const response = `HTTP/1.1 200 OK\r\nServer: ${agent}\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi`;
    return [text(request), text(response)];
}

/** A query, and its response without records. */
export function dns(name) {
    const labels = name.split('.').flatMap((label) => [u8(label.length), text(label)]);
    const question = Buffer.concat([...labels, u8(0), u16(1), u16(1)]);
    const message = (flags) => Buffer.concat([u16(7), u16(flags), u16(1), u16(0), u16(0), u16(0), question]);
    return [message(0x0100), message(0x8183)];
}

/** The same with an answer: the IPv4 address of the name. */
export function resolved(name, address) {
    const [query] = dns(name);
    const question = query.subarray(12);
    const head = Buffer.concat([u16(7), u16(0x8180), u16(1), u16(1), u16(0), u16(0)]);
    const answer = Buffer.concat([u16(0xc00c), u16(1), u16(1), u16(0), u16(60), u16(4), Buffer.from(address.split('.').map(Number))]);
    return [query, Buffer.concat([head, question, answer])];
}

/** A ClientHello. */
export function tls(name) {
    const server = long(Buffer.concat([u8(0), long(text(name))]));
    const extensions = long(Buffer.concat([u16(0), long(server)]));
    const hello = Buffer.concat([u16(0x0303), Buffer.alloc(32, 1), u8(0), long(u16(0x1301)), u8(1), u8(0), extensions]);
    const handshake = Buffer.concat([u8(1), u24(hello.length), hello]);
    return Buffer.concat([u8(22), u16(0x0301), long(handshake)]);
}

/** A capture of frames, a millisecond after one another; `start` is in seconds since 1970. */
export function capture(frames, start) {
    const le = (value) => {
        const octets = Buffer.alloc(4);
        octets.writeUInt32LE(value);
        return octets;
    };
    const head = [0xa1b2c3d4, 0x0004_0002, 0, 0, 65535, 1].map(le);
    const records = frames.flatMap((frame, at) => [le(start + Math.floor(at / 1000)), le((at % 1000) * 1000), le(frame.length), le(frame.length), frame]);
    return Buffer.concat([...head, ...records]);
}
