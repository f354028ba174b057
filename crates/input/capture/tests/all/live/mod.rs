mod af_packet;
mod af_xdp;
