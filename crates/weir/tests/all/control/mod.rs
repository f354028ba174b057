mod http;
mod limits;
mod openapi;
mod page;
mod stored;
