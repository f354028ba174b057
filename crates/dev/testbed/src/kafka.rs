//! A cluster of Kafka: the mock cluster of librdkafka, and a consumer of the same library. It shares no code with the
//! producer of Weir.

use crate::binary::signal;
use crate::namespace::BOUND;
use libloading::{Library, Symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

type Handle = *mut c_void;

const PRODUCER: c_int = 0;
const CONSUMER: c_int = 1;
const OFFSET_BEGINNING: i64 = -2;
const PARTITION_EOF: c_int = -191;
/// The request with which messages are sent.
const PRODUCE: i16 = 0;
const BROKERS: c_int = 3;

/// `rd_kafka_message_t`.
#[repr(C)]
struct CMessage {
    error: c_int,
    topic: Handle,
    partition: i32,
    value: *const u8,
    value_length: usize,
    key: *const u8,
    key_length: usize,
    offset: i64,
    opaque: Handle,
}

/// A message of a topic.
#[derive(Clone, Debug)]
pub struct KafkaMessage {
    /// Its partition.
    pub partition: i32,
    /// The key.
    pub key: Vec<u8>,
    /// The content.
    pub value: Vec<u8>,
    /// The header `weir.batch`.
    pub batch: String,
    /// The header `weir.probe`; empty without it.
    pub probe: String,
}

/// librdkafka. Prints that a test is skipped if it is not installed.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    // SAFETY: the initializers of librdkafka have no requirements.
    let library = LIBRARY.get_or_init(|| unsafe { Library::new("librdkafka.so.1") }.ok()).as_ref();
    if library.is_none() {
        eprintln!("SKIPPED: librdkafka is not installed (scripts/bootstrap test installs it)");
    }
    library
}

/// A function of the library.
///
/// # Safety
/// `T` is its type in rdkafka.h or rdkafka_mock.h.
unsafe fn function<T>(name: &str) -> Symbol<'static, T> {
    let library = library().expect("the library is loaded");
    // SAFETY: see above.
    unsafe { library.get(format!("rd_kafka_{name}\0").as_bytes()) }.unwrap_or_else(|error| panic!("{error}"))
}

/// Calls a function of librdkafka: its name, and argument and type of each argument.
macro_rules! call {
    ($name:literal, $($argument:expr => $type:ty),* ; $returned:ty) => {{
        // SAFETY: the types are those of the header; handles are alive and texts end with NUL, as the callers ensure.
        unsafe { function::<unsafe extern "C" fn($($type),*) -> $returned>($name)($($argument),*) }
    }};
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

/// A client with options.
fn client(kind: c_int, options: &[(&str, &str)]) -> Handle {
    let conf = call!("conf_new", ; Handle);
    let mut reason = [0 as c_char; 512];
    for (name, value) in options {
        let (name, value) = (text(name), text(value));
        let status = call!("conf_set", conf => Handle, name.as_ptr() => *const c_char, value.as_ptr() => *const c_char,
            reason.as_mut_ptr() => *mut c_char, reason.len() => usize; c_int);
        assert_eq!(status, 0, "{name:?}");
    }
    let client = call!("new", kind => c_int, conf => Handle, reason.as_mut_ptr() => *mut c_char,
        reason.len() => usize; Handle);
    assert!(!client.is_null());
    client
}

/// A cluster of three brokers, in a process of its own: librdkafka ends the process if the port of a broker cannot be
/// bound again, and a process that another test is just starting has a copy of it. Topics are created when a client
/// asks for them, with four partitions.
pub struct KafkaCluster {
    process: Child,
    answers: Lines<BufReader<ChildStdout>>,
    brokers: String,
}

/// The environment variable that makes a test the process of a cluster.
const IS_CLUSTER: &str = "WEIR_TEST_KAFKA_CLUSTER";
/// What the lines of that process begin with.
const ANSWER: &str = "cluster: ";

impl KafkaCluster {
    /// Starts it in the network namespace of this thread. `test`: the test of this program that calls
    /// [`serve_cluster`]. Prints that the test is skipped without librdkafka.
    pub fn start(test: &str) -> Option<Self> {
        library()?;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(IS_CLUSTER, "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut cluster = Self { process, answers, brokers: String::new() };
        cluster.brokers = cluster.answer();
        Some(cluster)
    }

    fn answer(&mut self) -> String {
        let answer = |line: String| Some(line.split_once(ANSWER)?.1.to_owned());
        self.answers.by_ref().map_while(Result::ok).find_map(answer).expect("the cluster answers")
    }

    fn ask(&mut self, request: &str) {
        writeln!(self.process.stdin.as_ref().unwrap(), "{request}").unwrap();
        assert_eq!(self.answer(), "0", "{request}");
    }

    /// The addresses of its brokers.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// A sink of Weir.
    pub fn sink(&self, topic: &str, settings: &str) -> String {
        format!("kafka://{}/{topic}{settings}", self.brokers)
    }

    /// Makes a topic.
    pub fn create(&mut self, topic: &str, partitions: i32) {
        self.ask(&format!("create {topic} {partitions}"));
    }

    /// The brokers refuse the next requests that send messages, with these errors.
    pub fn refuse(&mut self, errors: &[i32]) {
        errors.iter().for_each(|error| self.ask(&format!("refuse {error}")));
    }

    /// Answers questions for a topic with an error.
    pub fn refuse_topic(&mut self, topic: &str, error: i32) {
        self.ask(&format!("refuse_topic {topic} {error}"));
    }

    /// Brokers accept no connections from now on, or accept them again.
    pub fn set_down(&mut self, is_down: bool) {
        self.ask(if is_down { "down" } else { "up" });
    }

    /// Brokers answer nothing from now on, or go on; their connections stay.
    pub fn set_hanging(&mut self, is_hanging: bool) {
        signal(&self.process, if is_hanging { libc::SIGSTOP } else { libc::SIGCONT });
    }

    /// All messages of a topic, partition by partition.
    pub fn messages(&self, topic: &str, partitions: i32) -> Vec<KafkaMessage> {
        read_topic(&self.brokers, topic, partitions)
    }
}

impl Drop for KafkaCluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In the process of a cluster: does what [`KafkaCluster`] asks for, until it is ended. Returns at once in others.
pub fn serve_cluster() {
    if std::env::var_os(IS_CLUSTER).is_none() {
        return;
    }
    let client = client(PRODUCER, &[("log_level", "2")]);
    let cluster = call!("mock_cluster_new", client => Handle, BROKERS => c_int; Handle);
    assert!(!cluster.is_null());
    let brokers = call!("mock_cluster_bootstraps", cluster => Handle; *const c_char);
    // SAFETY: the text belongs to the cluster and does not change.
    println!("{ANSWER}{}", unsafe { CStr::from_ptr(brokers) }.to_str().unwrap());
    for line in std::io::stdin().lines() {
        println!("{ANSWER}{}", obey(cluster, &line.unwrap()));
    }
}

/// Returns the error of librdkafka, 0 for none.
fn obey(cluster: Handle, request: &str) -> c_int {
    let words: Vec<&str> = request.split(' ').collect();
    match words[..] {
        ["create", topic, partitions] => {
            let (topic, partitions) = (text(topic), partitions.parse().unwrap());
            call!("mock_topic_create", cluster => Handle, topic.as_ptr() => *const c_char, partitions => c_int,
                BROKERS => c_int; c_int)
        }
        ["refuse", error] => {
            let error: c_int = error.parse().unwrap();
            call!("mock_push_request_errors_array", cluster => Handle, PRODUCE => i16, 1 => usize,
                &raw const error => *const c_int; ());
            0
        }
        ["refuse_topic", topic, error] => {
            let (topic, error) = (text(topic), error.parse().unwrap());
            call!("mock_topic_set_error", cluster => Handle, topic.as_ptr() => *const c_char, error => c_int; ());
            0
        }
        ["down"] => (1..=BROKERS)
            .map(|broker| call!("mock_broker_set_down", cluster => Handle, broker => i32; c_int))
            .fold(0, |all, error| all | error),
        ["up"] => (1..=BROKERS)
            .map(|broker| call!("mock_broker_set_up", cluster => Handle, broker => i32; c_int))
            .fold(0, |all, error| all | error),
        _ => panic!("{request:?} is no request"),
    }
}

/// All messages of a topic in the partitions from 0 on. Waits until each has been read to its end.
pub fn read_topic(brokers: &str, topic: &str, partitions: i32) -> Vec<KafkaMessage> {
    let options = [
        ("bootstrap.servers", brokers),
        ("group.id", "test"),
        ("enable.auto.commit", "false"),
        ("enable.partition.eof", "true"),
        ("fetch.wait.max.ms", "10"),
        ("log_level", "2"),
    ];
    let consumer = client(CONSUMER, &options);
    call!("poll_set_consumer", consumer => Handle; c_int);
    let list = call!("topic_partition_list_new", partitions => c_int; Handle);
    let topic = text(topic);
    for partition in 0..partitions {
        call!("topic_partition_list_add", list => Handle, topic.as_ptr() => *const c_char, partition => i32; Handle);
        call!("topic_partition_list_set_offset", list => Handle, topic.as_ptr() => *const c_char, partition => i32,
            OFFSET_BEGINNING => i64; c_int);
    }
    assert_eq!(call!("assign", consumer => Handle, list => Handle; c_int), 0);
    let (mut messages, mut ended, end) = (Vec::new(), 0, Instant::now() + BOUND);
    while ended < partitions {
        assert!(Instant::now() < end, "the end of {topic:?} was not reached: {} messages", messages.len());
        let message = call!("consumer_poll", consumer => Handle, 100 => c_int; *mut CMessage);
        if message.is_null() {
            continue;
        }
        match error_of(message) {
            0 => messages.push(copied(message)),
            PARTITION_EOF => ended += 1,
            _ => {}
        }
        call!("message_destroy", message => *mut CMessage; ());
    }
    messages.sort_by_key(|message: &KafkaMessage| message.partition);
    call!("topic_partition_list_destroy", list => Handle; ());
    call!("consumer_close", consumer => Handle; c_int);
    call!("destroy", consumer => Handle; ());
    messages
}

fn error_of(message: *const CMessage) -> c_int {
    // SAFETY: the message is alive until it is destroyed.
    unsafe { (*message).error }
}

fn copied(message: *mut CMessage) -> KafkaMessage {
    let mut headers: Handle = std::ptr::null_mut();
    call!("message_headers", message => *mut CMessage, &raw mut headers => *mut Handle; c_int);
    let header = |name: &CStr| {
        let (mut value, mut length): (*const u8, usize) = (std::ptr::null(), 0);
        if !headers.is_null() {
            call!("header_get_last", headers => Handle, name.as_ptr() => *const c_char, &raw mut value => *mut *const u8,
                &raw mut length => *mut usize; c_int);
        }
        (value, length)
    };
    let octets = |start: *const u8, length: usize| match start.is_null() {
        true => Vec::new(),
        // SAFETY: key, value and header belong to the message, which is destroyed later.
        false => unsafe { std::slice::from_raw_parts(start, length) }.to_vec(),
    };
    let text = |(start, length)| String::from_utf8(octets(start, length)).unwrap();
    // SAFETY: the message is alive.
    let message = unsafe { &*message };
    KafkaMessage {
        partition: message.partition,
        key: octets(message.key, message.key_length),
        value: octets(message.value, message.value_length),
        batch: text(header(c"weir.batch")),
        probe: text(header(c"weir.probe")),
    }
}

/// Number, type and name of each field in a schema of protobuf.
pub fn proto_fields(schema: &Path) -> Vec<(u64, String, String)> {
    let text = std::fs::read_to_string(schema).unwrap();
    let field = |line: &str| {
        let (declared, number) = line.trim().strip_suffix(';')?.split_once(" = ")?;
        let words: Vec<&str> = declared.split(' ').collect();
        let [.., kind, name] = words[..] else { return None };
        Some((number.parse().ok()?, kind.to_owned(), name.to_owned()))
    };
    text.lines().filter_map(field).collect()
}

/// A value in a message of protobuf.
#[derive(Clone, Debug, PartialEq)]
pub enum ProtoValue {
    /// A varint.
    Number(u64),
    /// 64 bits.
    Double(f64),
    /// With a length.
    Octets(Vec<u8>),
}

/// The fields of a message of protobuf with its length before it.
pub fn proto_message(message: &[u8]) -> Vec<(u64, ProtoValue)> {
    let mut rest = message;
    assert_eq!(varint(&mut rest), rest.len() as u64, "the length is before the message");
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let value = match tag & 7 {
            0 => ProtoValue::Number(varint(&mut rest)),
            1 => ProtoValue::Double(f64::from_le_bytes(take(&mut rest, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut rest) as usize;
                ProtoValue::Octets(take(&mut rest, length).to_vec())
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, after) = rest.split_at(length);
    *rest = after;
    taken
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let octet = take(rest, 1)[0];
        number |= u64::from(octet & 0x7f) << shift;
        if octet < 0x80 {
            return number;
        }
    }
    panic!("a varint has at most 10 octets")
}
