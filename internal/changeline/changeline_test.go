package changeline

import (
	"bufio"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A line has all that is known of a change, and documents as they are: with their signs, and without their line ends.
func TestALineTellsAChange(t *testing.T) {
	at := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	c := feed.Change{
		ID: "1", PartitionKey: feed.Key("a&b"), LSN: 7, Time: at, Op: feed.OpDelete, Expired: true,
		Previous: json.RawMessage("{\"id\":\"1\",\r\n\"note\":\"<\u00e9>\"}"), PreviousLSN: 5,
	}
	const want = `{"lsn":7,"time":"2026-01-31T15:04:05Z","op":"delete","id":"1","key":["a&b"],"range":"-7F","expired":true,` +
		`"previous":{"id":"1","note":"<é>"},"previous_lsn":5,"next":"\"7\""}`
	var b strings.Builder
	w := bufio.NewWriter(&b)
	err := errors.Join((Form{Meta: true}).Write(w, feed.Range{Max: "7F"}, c, `"7"`), w.Flush())
	if err != nil || b.String() != want+"\n" {
		t.Errorf("got  %s, %v\nwant %s", b.String(), err, want)
	}
	for document, line := range map[string]string{
		"{\r\"a\": 1}": `{"a":1}`, "{\n\"a\": 1}": `{"a":1}`, `{"a": "<&>"}`: `{"a": "<&>"}`,
	} {
		b.Reset()
		c := feed.Change{Body: json.RawMessage(document)}
		if err := errors.Join((Form{}).Write(w, feed.FullRange(), c, ""), w.Flush()); err != nil ||
			b.String() != line+"\n" {
			t.Errorf("%q: got %q, %v, want %s", document, b.String(), err, line)
		}
	}
}
