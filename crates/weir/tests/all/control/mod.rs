mod http;
mod limits;
mod openapi;
