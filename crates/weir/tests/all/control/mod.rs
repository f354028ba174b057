mod http;
mod limits;
mod openapi;
mod stored;
