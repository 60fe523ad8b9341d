package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/outbox"
)

// A broker that is left open would be in use for the next relay of its process, and an embedded one could lose what it
// has not synced.
func TestARelayClosesItsBroker(t *testing.T) {
	dir, nats, in := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "in.ndjson")
	event := `{"id":"e1","partitionKey":"c1","type":"domainEvent","seq":1,"data":{"id":"e1","action":"ContactCreatedEvent"}}`
	if err := os.WriteFile(in, []byte(event), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#contacts", "--pk", "/partitionKey")
	for _, name := range []string{"one", "two"} {
		got := command(t, "relay", "--source", "docstore:"+dir+"#contacts", "--name", name, "--create-leases", "--once",
			"--to", "embedded:"+nats)
		if strings.TrimSpace(got) != "1 event published" {
			t.Errorf("relay %s says %q", name, got)
		}
	}
}

// What was parked is not what the broker has refused.
func TestTheEndOfARelayCountsWhatBecameOfItsEvents(t *testing.T) {
	status := outbox.RelayStatus{Published: 4, Parked: 1, Failed: 2, Lag: 3 * time.Second}
	for form, want := range map[report.Form]string{
		report.JSON: `{"kind":"relay","schema":1,"published":4,"parked":1,"failed":2,"lag_seconds":3}`,
		report.Text: "4 events published, 1 parked",
	} {
		var o relayOptions
		var out bytes.Buffer
		cmd := &cobra.Command{}
		o.report = report.New(form, &out)
		cmd.SetOut(&out)
		if err := o.reportPublished(cmd, status); err != nil || out.String() != want+"\n" {
			t.Errorf("%s: got %q, %v, want %s", form, out.String(), err, want)
		}
	}
}

// A program that reads the log as JSON finds nothing else there.
func TestAJSONLogHasNothingElseInIt(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in.ndjson")
	events := `{"id":"e1","partitionKey":"c1","type":"domainEvent","seq":1,"data":{"id":"e1","action":"Created"}}
{"id":"e2","partitionKey":"c2","type":"domainEvent","seq":1,"data":{"id":"e2"}}
`
	if err := os.WriteFile(in, []byte(events), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#contacts", "--pk", "/partitionKey")
	relay := []string{
		"relay", "--source", "docstore:" + dir + "#contacts", "--name", "one", "--create-leases", "--once",
		"--to", "embedded:" + t.TempDir(), "--max-attempts", "1", "--dead-letters",
		filepath.Join(t.TempDir(), "letters"), "-v", "-o", "json",
	}
	out, said, err := call(t, relay...)
	if err != nil || !strings.Contains(out, `"published":1,"parked":1,`) {
		t.Fatalf("got %q, %v: %s", out, err, said)
	}
	for line := range strings.Lines(said) {
		if !json.Valid([]byte(line)) {
			t.Errorf("the log has the line %q", line)
		}
	}
}
