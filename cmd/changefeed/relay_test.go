package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A broker that is left open would be in use for the next relay of its process, and an embedded one could lose what it has
// not synced.
func TestARelayClosesItsBroker(t *testing.T) {
	dir, nats, in := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "in.ndjson")
	event := `{"id":"e1","partitionKey":"c1","type":"domainEvent","seq":1,"data":{"id":"e1","action":"ContactCreatedEvent"}}`
	if err := os.WriteFile(in, []byte(event), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#contacts", "--pk", "/partitionKey")
	for _, name := range []string{"one", "two"} {
		got := command(t, "relay", "--source", "docstore:"+dir+"#contacts", "--name", name, "--create-leases", "--once", "--to", "embedded:"+nats)
		if strings.TrimSpace(got) != "1 event published" {
			t.Errorf("relay %s says %q", name, got)
		}
	}
}
