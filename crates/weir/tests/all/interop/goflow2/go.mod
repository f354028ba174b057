module weir/interop/goflow2

go 1.23.0

require github.com/netsampler/goflow2/v2 v2.2.6

require (
	github.com/libp2p/go-reuseport v0.4.0 // indirect
	golang.org/x/sys v0.35.0 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
