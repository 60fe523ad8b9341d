package peer

import (
	"flag"
	"net"
	"os/exec"
	"testing"
)

var javascript = flag.String("javascript", "",
	"the folder with Microsoft's client for JavaScript; make conformance-servicebus")

// Microsoft's own client for JavaScript takes the peer for a Service Bus. It has another AMQP library
// than the one for Go, so it finds what the peer has from the latter and not from the protocol.
func TestMicrosoftsClientForJavaScriptIsServed(t *testing.T) {
	if *javascript == "" {
		t.Skip("it needs node and the client: make conformance-servicebus")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broker := &Broker{RequiresSession: true}
	served := make(chan error, 1)
	go func() { served <- broker.Serve(listener) }()
	node := exec.CommandContext(t.Context(), "node", "run.mjs", listener.Addr().String())
	node.Dir = *javascript
	output, err := node.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Error(err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if sent, left := len(broker.Messages("contacts")), broker.Left("contacts"); sent < 100 || left > 0 {
		t.Errorf("%d messages were sent, %d are left", sent, left)
	}
}
