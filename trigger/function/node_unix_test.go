//go:build unix

package function_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/function"
)

// A custom handler as one writes it for Azure, in Node without a package.
const nodeHandler = `
const http = require("http");
const server = http.createServer((req, res) => {
  let body = "";
  req.setEncoding("utf8");
  req.on("data", (part) => { body += part; });
  req.on("end", () => {
    if (req.url !== "/Seen") { res.writeHead(404).end(); return; }
    const invocation = JSON.parse(body);
    const documents = JSON.parse(JSON.parse(invocation.Data.docs));
    if (documents[0].wait) {
      console.log("waiting");
      res.on("close", () => console.log("closed", req.headers["changefeed-lease"]));
      return;
    }
    if (documents[0].crash) { throw new Error("no such mailbox"); }
    res.setHeader("Content-Type", "application/json");
    res.end(JSON.stringify({
      Outputs: { copies: documents.map((d) => ({ id: d.id, text: d.text, lsn: d._lsn })) },
      Logs: [documents.length + " documents for " + invocation.Metadata.sys.MethodName],
    }));
  });
});
process.on("SIGTERM", () => { console.log("ends in order"); server.close(); server.closeAllConnections(); });
server.listen(process.env.FUNCTIONS_CUSTOMHANDLER_PORT, "127.0.0.1");
`

// documents notes the documents that are written.
type documents []string

// Upsert implements function.Upserter.
func (d *documents) Upsert(_ context.Context, document json.RawMessage) error {
	*d = append(*d, string(document))
	return nil
}

// A custom handler in Node gets its batches, is canceled, started again after a crash, and asked to end.
func TestAHandlerInNode(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("there is no node:", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "handler.js"), []byte(nodeHandler), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &function.Function{
		Name: "Seen", Trigger: function.Trigger{Name: "docs"}, Outputs: []function.Output{{Name: "copies"}},
	}
	app := &function.App{Dir: dir, Timeout: time.Minute, Program: function.Program{
		Executable: "node", Arguments: []string{"handler.js"}, Start: time.Minute,
	}}
	h, log := start(t, app, function.HostOptions{Grace: time.Minute})
	var written documents
	handler := h.Handler(f, map[string]function.Upserter{"copies": &written})
	b := batch("-FF", `{"id":"1","text":"é \u2028 \"<\\>\" 😀`+"\u2029"+`"}`, `{"id":"2","text":""}`)
	if err := handler.Handle(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	want := documents{
		"{\"id\":\"1\",\"text\":\"é \u2028 \\\"<\\\\>\\\" 😀\u2029\",\"lsn\":1}", `{"id":"2","text":"","lsn":2}`,
	}
	if !slices.Equal(written, want) {
		t.Errorf("got  %q\nwant %q", written, want)
	}
	log.await(t, `msg="2 documents for Seen"`)

	err := handler.Handle(t.Context(), batch("-FF", `{"crash":true}`))
	if err == nil || isOutage(err) {
		t.Errorf("a crash: got %v, want a failure that counts", err)
	}
	log.await(t, `level=ERROR msg="Error: no such mailbox"`)

	ctx, lose := context.WithCancelCause(t.Context())
	outcome := make(chan error, 1)
	go func() { outcome <- handler.Handle(ctx, batch("-FF", `{"wait":true}`)) }()
	log.await(t, "waiting")
	lose(feed.ErrLeaseLost)
	if err := <-outcome; !errors.Is(err, feed.ErrLeaseLost) {
		t.Errorf("a lost lease: got %v", err)
	}
	log.await(t, `msg="closed -FF"`)
	h.Close()
	log.await(t, "ends in order")
}
