// Decodes the NetFlow and IPFIX datagrams of a capture with goflow2 and prints a JSON object per
// record, as `goflow2 -format json` does. The capture is one that the tests of Weir write: pcap,
// little-endian, raw IPv4, UDP.
//
// With `messages`, reads the messages that Weir sends to Kafka, one after the other, as consumers of goflow2
// do, and prints them in the same way.
//
// usage: goflow2 CAPTURE, or goflow2 messages FILE
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/netsampler/goflow2/v2/format"
	_ "github.com/netsampler/goflow2/v2/format/json"
	flowmessage "github.com/netsampler/goflow2/v2/pb"
	protoproducer "github.com/netsampler/goflow2/v2/producer/proto"
	"github.com/netsampler/goflow2/v2/utils"
	"google.golang.org/protobuf/encoding/protodelim"
)

const (
	fileHeader   = 24
	recordHeader = 16
	ipAndUDP     = 28
)

// lines writes each formatted record to a line.
type lines struct{ out io.Writer }

func (l lines) Send(_, data []byte) error {
	_, err := fmt.Fprintf(l.out, "%s\n", data)
	return err
}

func run(capture string) error {
	octets, err := os.ReadFile(capture)
	if err != nil {
		return err
	}
	settings := protoproducer.ProducerConfig{}
	// Protocol numbers, not names.
	settings.Formatter.Render = map[string]protoproducer.RendererID{"proto": protoproducer.RendererNone}
	config, err := settings.Compile()
	if err != nil {
		return err
	}
	producer, err := protoproducer.CreateProtoProducer(config, protoproducer.CreateSamplingSystem)
	if err != nil {
		return err
	}
	lineFormat, err := format.FindFormat("json")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	pipe := utils.NewNetFlowPipe(&utils.PipeConfig{Format: lineFormat, Transport: lines{out}, Producer: producer})
	exporter := netip.MustParseAddrPort("127.0.0.1:1024")
	for at := fileHeader; at < len(octets); {
		length := int(binary.LittleEndian.Uint32(octets[at+8:]))
		at += recordHeader
		payload := octets[at+ipAndUDP : at+length]
		at += length
		message := utils.Message{Src: exporter, Dst: exporter, Payload: payload, Received: time.Now()}
		if err := pipe.DecodeFlow(&message); err != nil {
			return err
		}
	}
	return out.Flush()
}

func readMessages(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	in, out := bufio.NewReader(file), bufio.NewWriter(os.Stdout)
	for {
		var message flowmessage.FlowMessage
		err := protodelim.UnmarshalFrom(in, &message)
		if errors.Is(err, io.EOF) {
			return out.Flush()
		}
		if err != nil {
			return err
		}
		line, err := json.Marshal(&message)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", line)
	}
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "messages" {
		if err := readMessages(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: goflow2 CAPTURE")
		os.Exit(1)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
