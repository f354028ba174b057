mod http;
mod openapi;
