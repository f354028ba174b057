mod http;
mod limits;
mod openapi;
mod page;
mod recent;
mod stored;
mod top;
mod view;
