mod http;
mod limits;
mod openapi;
mod page;
mod recent;
mod stored;
mod view;
