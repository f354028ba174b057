//! Errors: `weir tcp`.

use super::advice::{connection_advice, memory_with_advice};

#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    #[error("--explain {key} reads the capture more than once, which is impossible with {pipe}; save it to a file")]
    ExplainOfPipe { key: String, pipe: String },
    #[error("--explain {key}: {error}{}{candidates}", connection_advice(.error))]
    Connection { key: String, error: weir_tcp_report::LookupError, candidates: String },
    #[error("--sort {text}: {error}")]
    ConnectionOrder { text: String, error: weir_tcp_report::InvalidOrder },
    #[error("--by with --sort {text}: {error}")]
    GroupOrder { text: String, error: weir_tcp_report::InvalidGroupOrder },
    #[error("--networks names the networks of --by network; leave it out, or sum up by network")]
    NetworksWithoutNetwork,
    #[error("--where: weir tcp does not know {field} of a connection; weir read --where has it")]
    UnknownField { field: &'static str },
    #[error("--engine gpu: no GPU can be used: {0}; --engine auto continues without a GPU")]
    Engine(weir_tcp_batch::DeviceError),
    #[error("{}", memory_with_advice(.0))]
    Memory(weir_tcp_report::MemoryError),
}
