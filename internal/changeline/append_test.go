package changeline

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// encoded is what encoding/json makes of a change.
func encoded(t *testing.T, r feed.Range, c feed.Change, next string) string {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(described{
		LSN: c.LSN, Time: c.Time, Op: c.Op.String(), ID: c.ID, Key: json.RawMessage(c.PartitionKey), Range: r.String(),
		Expired: c.Expired, Document: c.Body, Previous: c.Previous, PreviousLSN: c.PreviousLSN, Next: next,
	}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestAChangeIsEncodedAsByEncodingJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		const odd = "ab \"\\/\b\f\n\r\t\u0000\u007fé€😀\u2028\xff<&>{}[]:,"
		var s []byte
		for range rng.IntN(12) {
			s = append(s, odd[rng.IntN(len(odd))])
		}
		return string(s)
	}
	object := func() json.RawMessage {
		s, _ := json.Marshal(map[string]any{text(): text(), "n": rng.Float64(), text(): []any{text(), nil, true}})
		if rng.IntN(2) == 0 {
			var spaced bytes.Buffer
			_ = json.Indent(&spaced, s, " ", "\t")
			s = bytes.ReplaceAll(spaced.Bytes(), []byte("\n"), []byte("\r\n"))
		}
		return s
	}
	for range 2000 {
		c := feed.Change{
			ID: text(), PartitionKey: feed.Key(text()), LSN: rng.Int64(), Op: feed.OpDelete, Expired: rng.IntN(2) == 0,
			Time: time.Unix(rng.Int64N(1<<33), rng.Int64N(1e9)).UTC(), PreviousLSN: int64(rng.IntN(2)),
		}
		if rng.IntN(3) > 0 {
			c.Body, c.Previous = object(), object()
		}
		next := text()
		got, err := Append([]byte("before"), feed.Range{Max: "7F"}, &c, next)
		if want := "before" + encoded(t, feed.Range{Max: "7F"}, c, next); err != nil || string(got) != want {
			t.Fatalf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

// Documents without space, which are copied as they are, come out as those that are looked at byte by byte.
func TestADocumentIsCopiedAsItIsOnlyIfItIsCompact(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const odd = "abcdefgh\"\\\\\x00\n\r\t \x1f!\x7f\x80\xff{}[]:,0"
	plain := 0
	for range 20_000 {
		text := make([]byte, 1+rng.IntN(40))
		for i := range text {
			if text[i] = byte('a' + rng.IntN(26)); rng.IntN(12) == 0 {
				text[i] = odd[rng.IntN(len(odd))]
			}
		}
		if rng.IntN(2) == 0 { // as a JSON string
			text = []byte(strconv.Quote(strings.ToValidUTF8(string(text), "")))
		}
		want, wrong := appendCompact([]byte("before"), text)
		got, err := appendDocument([]byte("before"), text)
		if isPlain(text) {
			plain++
			if bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' }) {
				t.Fatalf("%q has space", text)
			}
		}
		isSame := err == nil && wrong == nil && string(got) == string(want)
		if json.Valid(text) && !isSame || bytes.Contains(got, []byte("\n")) {
			t.Fatalf("%q: got %q, %v, want %q, %v", text, got, err, want, wrong)
		}
	}
	if plain < 1000 {
		t.Errorf("only %d texts without space", plain)
	}
}

// A reader of lines would otherwise read a part of a document as a line.
func TestWhatIsNoJSONAddsNoLine(t *testing.T) {
	for _, bad := range []string{"{\"a\":\"\n\"}", "{\"a\":\"\\\n\"}", "{\"a\"\\\n:1}", "{\x00}", "{\"a\":\"\\"} {
		for _, c := range []feed.Change{
			{PartitionKey: feed.Key("a"), Body: json.RawMessage(bad)},
			{PartitionKey: feed.Key("a"), Previous: json.RawMessage(bad)},
			{PartitionKey: feed.PartitionKey(bad)},
		} {
			if got, err := Append(nil, feed.FullRange(), &c, ""); err == nil {
				t.Errorf("%q: got %q and no error", bad, got)
			}
		}
	}
	if _, err := Append(nil, feed.FullRange(), &feed.Change{}, ""); err == nil {
		t.Error("no error of a change without a key")
	}
	late := feed.Change{PartitionKey: feed.Key("a"), Time: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}
	if _, err := Append(nil, feed.FullRange(), &late, ""); err == nil {
		t.Error("no error of a time that RFC 3339 cannot tell")
	}
}

func BenchmarkAppend(b *testing.B) {
	c := feed.Change{
		ID: "item-1", PartitionKey: feed.Key("key-1"), LSN: 1000, Time: time.Unix(1790000000, 0).UTC(),
		Body: json.RawMessage(`{"id":"item-1","pk":"key-1","n":1,"text":"` + strings.Repeat("x", 50) +
			`","_rid":"kDivHoAAAAE=","_self":"","_etag":"\"1\"","_attachments":"attachments/","_ts":1790000000}`),
	}
	var dst []byte
	for b.Loop() {
		var err error
		if dst, err = Append(dst[:0], feed.FullRange(), &c, ""); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(dst)))
}
