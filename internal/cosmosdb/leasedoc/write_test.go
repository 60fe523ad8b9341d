package leasedoc_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

var touched = time.Date(2026, 3, 4, 23, 55, 16, 523351100, time.UTC)

// The documents below have the members, order and nulls of the .NET v3 processor.
func TestWrittenDocumentsAreThoseOfDotNet(t *testing.T) {
	for _, c := range []struct {
		name, path, want string
		lease            feed.Record
	}{
		{
			"a version 0 lease as first created", "/id",
			`{"id":"P..0","version":0,"_etag":null,"LeaseToken":"0","FeedRange":{"Range":{"min":"","max":"FF"}},` +
				`"Owner":null,"ContinuationToken":null,"properties":{},"timestamp":null,"_ts":0,"Mode":"Incremental Feed"}`,
			feed.Record{Kind: feed.KindLease, Token: "0", Range: feed.FullRange()},
		},
		{
			"a version 1 lease at work", "/partitionKey",
			`{"id":"P..-FF","partitionKey":"P..-FF","version":1,"_etag":"\"00\"","LeaseToken":"-FF",` +
				`"FeedRange":{"Range":{"min":"","max":"FF"}},"Owner":"host-a","ContinuationToken":"\"1083\"","properties":{},` +
				`"timestamp":"2026-03-04T23:55:16.5233511Z","_ts":1772668516,"Mode":"Full-Fidelity Feed"}`,
			feed.Record{
				Kind: feed.KindLease, Token: "-FF", Version: 1, Owner: "host-a", Position: feed.At(`"1083"`),
				ETag: `"00"`,
				Mode: feed.AllVersionsAndDeletes, Timestamp: touched, Updated: touched.Truncate(time.Second),
			},
		},
		{
			"a lease with everything of ours", "/id",
			`{"id":"P..3F-FF","version":1,"_etag":null,"LeaseToken":"3F-FF","FeedRange":{"Range":{"min":"3F","max":"FF"}},` +
				`"Owner":"a/b","ContinuationToken":null,"properties":{"team":"<red>","changefeed.epoch":"a/b/e1",` +
				`"changefeed.attempts":"3 after ","changefeed.start":"beginning","changefeed.state":"splitting",` +
				`"changefeed.fence":"#1772668516524","changefeed.expiration":"1m0s"},` +
				`"timestamp":null,"_ts":0,"Mode":"Incremental Feed","ttl":61}`,
			feed.Record{
				Kind: feed.KindLease, Token: "3F-FF", Version: 1, Owner: "a/b", Epoch: "e1", Attempts: 3,
				State:    feed.StateSplitting,
				Position: feed.Position{Start: feed.FromBeginning()}, Fence: touched, Expiration: time.Minute,
				TTL: 60*time.Second + 1, Properties: map[string]string{"team": "<red>"},
			},
		},
		{
			"a version 1 lease that was stored without its range", "/id",
			`{"id":"P..-FF","version":1,"_etag":null,"LeaseToken":"-FF","FeedRange":{"Range":{"min":"","max":"FF"}},` +
				`"Owner":null,"ContinuationToken":null,"properties":{},"timestamp":null,"_ts":0}`,
			feed.Record{
				Kind: feed.KindLease, Token: "-FF", Version: 1,
				Raw: json.RawMessage(`{"id":"P..-FF","version":1,"LeaseToken":"-FF"}`),
			},
		},
		{"the marker", "/partitionKey", `{"id":"P.info","partitionKey":"P.info"}`, feed.Record{Kind: feed.KindInfo}},
		{"the lock", "/id", `{"id":"P.lock","ttl":30}`, feed.Record{Kind: feed.KindLock, TTL: 30 * time.Second}},
		{
			"a host", "/id",
			`{"id":"P.host.h1","Owner":"h1","properties":{"weight":"2","changefeed.epoch":"h1/e"},` +
				`"timestamp":"2026-03-04T23:55:16.5233511Z","ttl":60}`,
			feed.Record{
				Kind: feed.KindHost, Token: "h1", Owner: "h1", Epoch: "e", TTL: time.Minute, Timestamp: touched,
				Properties: map[string]string{"weight": "2"},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := leasedoc.Marshal("P", c.path, c.lease)
			if err != nil || string(got) != c.want {
				t.Errorf("Marshal: %v\n got %s\nwant %s", err, got, c.want)
			}
		})
	}
}

func TestAnUpdateKeepsWhatItDoesNotKnow(t *testing.T) {
	stored := `{"id":"P..0","partitionKey":"5f1c","note":{"a":[1,2.50]},"LeaseToken":"0","PartitionId":"0","Owner":"x",` +
		`"properties":{"other":"1","acme.n":7,"changefeed.attempts":"9","changefeed.later":"kept"},"_rid":"r","_self":"s","_attachments":"a/","_lsn":4,"state":2,"ttl":-1}`
	l := leasedoc.Unmarshal("P", []byte(stored))
	if l.Err != nil {
		t.Fatal(l.Err)
	}
	l.Owner, l.Attempts = "", 0
	l.Properties["new"] = "2"
	got, err := leasedoc.Marshal("P", "/partitionKey", l)
	want := `{"id":"P..0","partitionKey":"5f1c","version":0,"_etag":null,"LeaseToken":"0","PartitionId":"0",` +
		`"Owner":null,"ContinuationToken":null,"properties":{"other":"1","acme.n":7,"changefeed.later":"kept","new":"2"},` +
		`"timestamp":null,"_ts":0,"ttl":-1,"note":{"a":[1,2.50]},"state":2}`
	if err != nil || string(got) != want {
		t.Errorf("Marshal: %v\n got %s\nwant %s", err, got, want)
	}
}

// A document of two ranges would mean one thing to Java and another to .NET.
func TestAnUpdateLeavesOneRange(t *testing.T) {
	for stored, want := range map[string]string{
		`{"Range":{"min":"","max":"3F","isMinInclusive":true}}`: `"FeedRange":{"Range":{"min":"","max":"3F"}}`,
		`{"PKRangeId":"0"}`: `"FeedRange":{"PKRangeId":"0"}`, // whose range nobody knows here
	} {
		l := leasedoc.Unmarshal("P", []byte(`{"id":"P..0","LeaseToken":"0","properties":{},"feedRange":`+stored+`}`))
		got, err := leasedoc.Marshal("P", "/id", l)
		if err != nil || !strings.Contains(string(got), want) || strings.Contains(string(got), "feedRange") {
			t.Errorf("Marshal = %s, %v, want %s alone", got, err, want)
		}
	}
}

// A time to live ends with the record that has it, and "never" is an exception of its document.
func TestATimeToLiveIsThatOfTheRecord(t *testing.T) {
	for stored, want := range map[string]bool{"30": false, "-1": true} {
		for _, id := range []string{"P..0", "P.host.a"} {
			l := leasedoc.Unmarshal("P", []byte(`{"id":"`+id+`","LeaseToken":"0","ttl":`+stored+`}`))
			l.TTL = 0
			got, err := leasedoc.Marshal("P", "/id", l)
			if err != nil || strings.Contains(string(got), `"ttl":`+stored) != want {
				t.Errorf("Marshal of %s with ttl %s = %s, %v, want it kept: %v", id, stored, got, err, want)
			}
		}
	}
}

// Longer fractions and other zones are no text that .NET writes.
func TestATimestampIsWrittenAsDotNetDoes(t *testing.T) {
	local := time.Date(2026, 3, 5, 0, 55, 16, 523351199, time.FixedZone("CET", 3600))
	got, err := leasedoc.Marshal("P", "/id", feed.Record{Kind: feed.KindLease, Token: "0", Timestamp: local})
	if want := `"timestamp":"2026-03-04T23:55:16.5233511Z"`; err != nil || !strings.Contains(string(got), want) {
		t.Errorf("Marshal = %s, %v, want %s", got, err, want)
	}
}

func TestRemovedPropertiesAreGoneAndUnsetOnesStay(t *testing.T) {
	raw := json.RawMessage(`{"id":"P..0","LeaseToken":"0","properties":{"a":"1","b":"2"}}`)
	for _, c := range []struct {
		properties map[string]string
		want       string
	}{
		{nil, `"properties":{"a":"1","b":"2"}`},
		{map[string]string{"b": "3"}, `"properties":{"b":"3"}`},
		{map[string]string{}, `"properties":{}`},
	} {
		got, err := leasedoc.Marshal("P", "/id", feed.Record{
			Kind: feed.KindLease, Token: "0", Properties: c.properties,
			Raw: raw,
		})
		if err != nil || !strings.Contains(string(got), c.want) {
			t.Errorf("properties %v: %v\n got %s\nwant %s", c.properties, err, got, c.want)
		}
	}
}

// Nobody may begin before the fence, so a part of a millisecond counts as a whole one.
func TestAFenceIsNeverEarlierThanItWas(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{
		0: 0, time.Nanosecond: time.Millisecond, time.Millisecond: time.Millisecond, 1_500_000: 2 * time.Millisecond,
	} {
		begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		doc, err := leasedoc.Marshal("P", "/id", feed.Record{Kind: feed.KindLease, Token: "0", Fence: begin.Add(after)})
		if got := leasedoc.Unmarshal("P", doc).Fence.Sub(begin); err != nil || got != want {
			t.Errorf("a fence %v after is read as %v after, %v; want %v", after, got, err, want)
		}
	}
}

// An old lease of .NET has no mode, and gets one only if it says something new.
func TestAModeIsWrittenWhereItIsNotTheOldOne(t *testing.T) {
	raw := json.RawMessage(`{"id":"P..0","LeaseToken":"0"}`)
	for mode, want := range map[feed.Mode]bool{feed.LatestVersion: false, feed.AllVersionsAndDeletes: true} {
		doc, err := leasedoc.Marshal("P", "/id", feed.Record{Kind: feed.KindLease, Token: "0", Mode: mode, Raw: raw})
		if got := leasedoc.Unmarshal("P", doc); err != nil || got.Mode != mode ||
			strings.Contains(string(doc), `"Mode"`) != want {
			t.Errorf("%v became %v, %v: %s", mode, got.Mode, err, doc)
		}
	}
}

func TestRecordsThatCouldNotBeReadAgainAreRefused(t *testing.T) {
	for want, l := range map[string]feed.Record{
		"no slash":       {Kind: feed.KindLease, Token: "0", Epoch: "a/b"},
		"want 0 or 1":    {Kind: feed.KindLease, Token: "0", Version: 2},
		"mode is 7":      {Kind: feed.KindLease, Token: "0", Mode: 7},
		`state is "a.b"`: {Kind: feed.KindLease, Token: "0", State: "a.b"},
		`kind is ""`:     {Token: "0"},
		`kind is "A"`:    {Kind: "A", Token: "0"},
		`kind is "a.b"`:  {Kind: "a.b", Token: "0"},
		"is negative":    {Kind: feed.KindLease, Token: "0", Attempts: -1},
		"expiration -1s": {Kind: feed.KindLease, Token: "0", Expiration: -time.Second},
		"min-max":        {Kind: feed.KindLease, Token: "0", Version: 1},
		"range is -3F":   {Kind: feed.KindLease, Token: "3F-FF", Version: 1, Range: feed.Range{Max: "3F"}},
		"token of a":     {Kind: feed.KindHost},
		"time to live":   {Kind: feed.KindLease, Token: "0", TTL: -1},
		"stored":         {Kind: feed.KindLease, Token: "0", Raw: json.RawMessage("{")},
		"not a lease":    {Kind: feed.KindLease, Token: "0", Err: leasedoc.ErrJava},
		"lease is empty": {Kind: feed.KindLease},
	} {
		doc, err := leasedoc.Marshal("P", "/id", l)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Marshal = %s, %v, want an error with %q", doc, err, want)
		}
	}
	if _, err := leasedoc.Marshal("P", "/pk", feed.Record{Kind: feed.KindLease, Token: "0"}); err == nil ||
		!strings.Contains(err.Error(), `"/pk"`) {
		t.Errorf("Marshal with partition key path /pk: %v", err)
	}
	java := feed.Record{Kind: feed.KindLease, Token: "0", Raw: json.RawMessage("{}"), Err: leasedoc.ErrJava}
	if _, err := leasedoc.Marshal("P", "/id", java); !errors.Is(err, leasedoc.ErrJava) {
		t.Errorf("Marshal of a Java lease: %v, want ErrJava", err)
	}
}

// What a later version keeps comes back from this one with all its members, under an id of its
// own: above all, not that of a lease.
func TestKindsAndStatesOfALaterVersionAreKept(t *testing.T) {
	for doc, want := range map[string]feed.Record{
		`{"id":"P.control","Owner":"a","properties":{"pause":"all"},"LeaseToken":[7],"version":3,"Mode":"x"}`: {
			Kind: "control", Owner: "a", Properties: map[string]string{"pause": "all"},
		},
		`{"id":"P.held.a~2Fb.c","FeedRange":{"min":"1"},"ContinuationToken":{},"ttl":30}`: {
			Kind:  "held",
			Token: "a/b.c", TTL: 30 * time.Second,
		},
		`{"id":"P.host.h","properties":{"changefeed.state":"draining"}}`: {
			Kind: feed.KindHost, Token: "h",
			State: "draining",
		},
		`{"id":"P..-FF","version":1,"_etag":null,"LeaseToken":"-FF","FeedRange":{"Range":{"min":"","max":"FF"}},"Owner":null,` +
			`"ContinuationToken":null,"properties":{"changefeed.state":"paused"},"timestamp":null,"_ts":0}`: {
			Kind: feed.KindLease, Token: "-FF", Version: 1, Range: feed.FullRange(), State: "paused",
		},
	} {
		got := leasedoc.Unmarshal("P", []byte(doc))
		want.ID, want.Raw = leasedoc.ID("P", want.Kind, want.Token), got.Raw
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v\nwant %+v", doc, got, want)
		}
		var before, after map[string]any
		again, err := leasedoc.Marshal("P", "/id", got)
		if err := errors.Join(err, json.Unmarshal([]byte(doc), &before), json.Unmarshal(again, &after)); err != nil ||
			!reflect.DeepEqual(before, after) {
			t.Errorf("%s\nwas written again as %s, %v", doc, again, err)
		}
	}
}
