package leasedoc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/proof/rewriter"
)

// The attempts count for the position that they were written with. A processor of another make moves the position and
// keeps the property.
func TestAttemptsCountForTheirPositionAlone(t *testing.T) {
	for _, c := range []struct {
		token, attempts string
		want            int
	}{
		{`"1083"`, `3 after "1083"`, 3},
		{`"1084"`, `3 after "1083"`, 0},
		{``, `3 after "1083"`, 0},
		{``, `3 after `, 3},
		{`"1083"`, `3 after `, 0},
		{`"1083"`, `3`, 0}, // of an older version, which did not say for which position
		{` after `, `3 after  after `, 3},
	} {
		doc := fmt.Sprintf(`{"id":"P..0","LeaseToken":"0","ContinuationToken":%q,"properties":{"changefeed.attempts":%q}}`, c.token, c.attempts)
		if l := leasedoc.Unmarshal("P", []byte(doc)); l.Err != nil || l.Attempts != c.want {
			t.Errorf("%s are read as %d at %s, %v; want %d", c.attempts, l.Attempts, c.token, l.Err, c.want)
		}
	}
	for _, bad := range []string{
		"", "-1", "three", `-1 after "1083"`, ` after "1083"`, `3after "1083"`,
		`3 before "1083"`, "99999999999 after ",
	} {
		doc := fmt.Sprintf(`{"id":"P..0","LeaseToken":"0","ContinuationToken":"\"1083\"","properties":{"changefeed.attempts":%q}}`, bad)
		if l := leasedoc.Unmarshal("P", []byte(doc)); !errors.Is(l.Err, feed.ErrBadLease) || l.Attempts != 0 {
			t.Errorf("%q is read as %d, %v", bad, l.Attempts, l.Err)
		}
	}
}

// everyProperty is a lease with each property that is written for one.
func everyProperty() feed.Record {
	at := notes.Place{Position: `"1083"`, Max: "FF", Partitions: []notes.Partition{{ID: "0", Max: "FF"}}}
	partition := notes.Name(at.Min, at.Max, at.Partitions)
	return feed.Record{
		Kind: feed.KindLease, Token: "-FF", Version: 1, Range: feed.FullRange(), Owner: "a", Epoch: "17", Attempts: 3,
		Position: feed.Position{Token: at.Position, Start: feed.FromTime(touched)}, State: feed.StateSplitting,
		Fence: touched, Expiration: time.Minute,
		Properties: map[string]string{
			notes.DoneProperty: notes.Done{
				At: at.Position, Partition: partition, Through: 9,
				Open: []int64{8},
			}.String(),
			notes.HeldProperty: notes.Held{
				At: at.Position, Partition: partition, Keys: []string{`["oslo"]`},
				Since: []int64{7},
			}.String(),
			notes.AsideProperty: notes.Aside{
				At: at.Position, Partition: partition,
				Keys: []notes.AsideKey{{Key: `["rome"]`, From: `"2"`, LSN: 4}},
			}.String(),
			notes.OutageProperty:     notes.Outage(touched),
			notes.TermProperty:       notes.PlainNumber(17),
			notes.GenerationProperty: notes.PlainNumber(2),
			notes.PartsProperty:      "-1F 1F-FF",
			notes.DueProperty:        notes.Due{By: touched.Add(time.Second), Sent: touched}.String(),
		},
	}
}

// everyKind is a record of each kind that we write, with each property that it may have.
func everyKind() map[string]feed.Record {
	lease := everyProperty()
	retired, first := lease, lease
	retired.State = feed.StateRetired
	first.Position, first.Attempts = feed.Position{Start: feed.FromTime(touched)}, 0
	asked := notes.Request{Action: notes.Retry, EPK: "05E1", Key: `["oslo"]`, Letter: "12.0", Tries: 2}
	served := notes.Outcome{Result: notes.Failed, Cause: "exit status 1", Count: 3, Left: 4}
	return map[string]feed.Record{
		"lease": lease, "retired lease": retired, "lease without a token": first,
		"lock": {Kind: feed.KindLock, TTL: time.Minute, Timestamp: touched},
		"host": {
			Kind: feed.KindHost, Token: "a/e1", Owner: "a", Epoch: "e1", Expiration: time.Minute, TTL: time.Minute,
			Timestamp: touched,
			Properties: map[string]string{
				notes.MostProperty: notes.PlainNumber(4), notes.VariantProperty: `{"handler":"2","since":1}`,
			},
		},
		"marker": {Kind: feed.KindInfo, Timestamp: touched, Properties: map[string]string{
			notes.OptionProperty: notes.PlainTime(feed.FromTime(touched).String()),
			notes.OriginProperty: notes.PlainTime(feed.FromTime(touched).String()),
		}},
		"request": {
			Kind: feed.KindRequest, Token: asked.Token(), Timestamp: touched,
			Properties: notes.SetWaits(asked.Properties(nil), "its lease has no owner"),
		},
		"answer": {
			Kind: feed.KindRequest, Token: asked.Token(), Timestamp: touched,
			Properties: served.Properties(asked.Properties(nil)),
		},
	}
}

func propertiesOf(t *testing.T, doc []byte) (properties map[string]string) {
	t.Helper()
	var record struct{ Properties map[string]string }
	if err := json.Unmarshal(doc, &record); err != nil {
		t.Fatal(err)
	}
	return record.Properties
}

// A processor of another make, or a script, may rewrite what looks like a date or a number.
func TestNothingThatWeWriteLooksLikeADateOrANumber(t *testing.T) {
	all := 0
	for name, record := range everyKind() {
		for _, path := range []string{"/id", "/partitionKey"} {
			doc, err := leasedoc.Marshal("P", path, record)
			if err != nil {
				t.Fatal(err)
			}
			if got := rewriter.DotNet(doc); string(got) != string(doc) {
				t.Errorf("%s: .NET makes of it\n%s, written was\n%s", name, got, doc)
			}
			for property, text := range propertiesOf(t, doc) {
				all++
				if like := rewriter.LooksLike(text); like != "" {
					t.Errorf("%s: %s is %q, which looks like a %s", name, property, text, like)
				}
			}
		}
	}
	if all < 2*60 {
		t.Errorf("only %d properties: the test shows little", all)
	}
}

// Documents of older versions have a start that looks like a time, and numbers. They are read, also as others have
// rewritten them.
func TestWhatOthersHaveRewrittenIsRead(t *testing.T) {
	lease := everyProperty()
	now, err := leasedoc.Marshal("P", "/id", lease)
	if err != nil {
		t.Fatal(err)
	}
	older := strings.NewReplacer(`"at 2026`, `"2026`, `"#`, `"`).Replace(string(now))
	dotnet := string(rewriter.DotNet([]byte(older)))
	if older == string(now) || !strings.Contains(dotnet, `"changefeed.start":"03/04/2026 23:55:16"`) {
		t.Fatalf("the test shows nothing: %s, by .NET %s", older, dotnet)
	}
	numbers := regexp.MustCompile(`"(changefeed.(?:fence|term|generation))":"(\d+)"`).ReplaceAllString(older, `"$1":$2`)
	want := leasedoc.Unmarshal("P", now)
	for name, doc := range map[string]string{"older": older, "by .NET": dotnet, "by a script": numbers} {
		got := leasedoc.Unmarshal("P", []byte(doc))
		start := want.Position.Start.Time()
		if name == "by .NET" {
			start = start.Truncate(time.Second) // it keeps no parts of a second; what is earlier skips nothing
		}
		if got.Err != nil || !got.Position.Start.Time().Equal(start) || !got.Fence.Equal(want.Fence) ||
			notes.Number(got.Properties, notes.TermProperty) != 17 ||
			notes.Number(got.Properties, notes.GenerationProperty) != 2 {
			t.Errorf("%s: read as %+v, want %+v", name, got, want)
		}
		again, err := leasedoc.Marshal("P", "/id", got)
		if err != nil {
			t.Errorf("%s: write again: %v", name, err)
		}
		if like := rewriter.LooksLike(propertiesOf(t, again)["changefeed.start"]); like != "" {
			t.Errorf("%s: written again as %s", name, again)
		}
	}
}

// The time of the last write is judged by nobody, so a form of it that others have made stops no lease.
func TestATimestampThatWasRewrittenIsRead(t *testing.T) {
	l := leasedoc.Unmarshal("P", []byte(`{"id":"P..0","LeaseToken":"0","timestamp":"03/04/2026 23:55:16"}`))
	if want := touched.Truncate(time.Second); l.Err != nil || !l.Timestamp.Equal(want) {
		t.Errorf("read as %v, %v, want %v", l.Timestamp, l.Err, want)
	}
}
