package leasedoc_test

import (
	"encoding/base64"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

func TestEveryDialectReads(t *testing.T) {
	for _, c := range []struct {
		name, doc string
		want      feed.Record
	}{
		{
			".NET version 0 before FeedRange, version and Mode",
			`{"id":"P..0","_etag":"\"e\"","LeaseToken":"0","Owner":" ","ContinuationToken":null,"properties":{},"timestamp":null,"_ts":1700000000}`,
			feed.Record{Kind: feed.KindLease, Token: "0", ETag: `"e"`, Updated: time.Unix(1700000000, 0).UTC()},
		},
		{
			".NET version 1",
			`{"id":"P..05C1CF-0BF333","version":1,"LeaseToken":"05C1CF-0BF333","FeedRange":{"Range":{"min":"05C1CF","max":"0BF333"}},` +
				`"Owner":"a","ContinuationToken":"\"1083\"","properties":{"k":"v"},"timestamp":"2026-03-04T23:55:16.5233511Z","_ts":0,"Mode":"full-fidelity feed"}`,
			feed.Record{
				Kind: feed.KindLease, Token: "05C1CF-0BF333", Version: 1,
				Range: feed.Range{Min: "05C1CF", Max: "0BF333"}, Owner: "a",
				Position: feed.At(`"1083"`), Properties: map[string]string{"k": "v"}, Timestamp: touched,
				Mode: feed.AllVersionsAndDeletes,
			},
		},
		{
			".NET V2",
			`{"id":"P..12","PartitionId":"12","Owner":null,"ContinuationToken":"\"7\"","state":2}`,
			feed.Record{Kind: feed.KindLease, Token: "12", Position: feed.At(`"7"`)},
		},
		{
			"Java on a partition key range id",
			`{"id":"P..0","_etag":null,"LeaseToken":"0","ContinuationToken":"\"11\"","timestamp":"2022-11-15T17:43:34.634427001Z","Owner":"ZK"}`,
			feed.Record{
				Kind: feed.KindLease, Token: "0", Owner: "ZK", Position: feed.At(`"11"`),
				Timestamp: time.Date(2022, 11, 15, 17, 43, 34, 634427001, time.UTC),
			},
		},
		{
			"a range in the token alone",
			`{"id":"P..-FF","version":1,"LeaseToken":"-FF","FeedRange":null}`,
			feed.Record{Kind: feed.KindLease, Token: "-FF", Version: 1, Range: feed.FullRange()},
		},
		{
			"a range with its defaults spelled out, in another case",
			`{"id":"P..-FF","version":1,"LeaseToken":"-FF","properties":{},"feedrange":{"range":{"min":"","max":"ff","isMinInclusive":true,"isMaxInclusive":false}}}`,
			feed.Record{Kind: feed.KindLease, Token: "-FF", Version: 1, Range: feed.FullRange()},
		},
		{
			"a range as Java spells it, in a lease that is none of its",
			`{"id":"P..0","LeaseToken":"0","ContinuationToken":null,"properties":null,"feedRange":{"Range":{"min":"","max":"3F"}}}`,
			feed.Record{Kind: feed.KindLease, Token: "0", Range: feed.Range{Max: "3F"}},
		},
		{
			"the same without properties, and with a continuation that is no state of Java's",
			`{"id":"P..0","LeaseToken":"0","ContinuationToken":"\"7\"","feedRange":{"Range":{"min":"","max":"3F"}}}`,
			feed.Record{Kind: feed.KindLease, Token: "0", Range: feed.Range{Max: "3F"}, Position: feed.At(`"7"`)},
		},
		{
			"a state that is spelled out though it is the usual one",
			`{"id":"P..0","LeaseToken":"0","properties":{"changefeed.state":"live"}}`,
			feed.Record{Kind: feed.KindLease, Token: "0", State: feed.StateLive},
		},
		{
			"a continuation without quotes",
			`{"id":"P..0","LeaseToken":"0","ContinuationToken":"1083"}`,
			feed.Record{Kind: feed.KindLease, Token: "0", Position: feed.At("1083")},
		},
		{
			"ours, of an owner that a foreign processor has replaced",
			`{"id":"P..0","LeaseToken":"0","Owner":"dotnet","properties":{"changefeed.epoch":"go/1","changefeed.attempts":"2 after ",` +
				`"changefeed.start":"2026-01-31T15:04:05Z","changefeed.state":"retired","changefeed.fence":"1500","changefeed.expiration":"90s"},"ttl":30}`,
			feed.Record{
				Kind: feed.KindLease, Token: "0", Owner: "dotnet", Attempts: 2, State: feed.StateRetired,
				Fence:      time.UnixMilli(1500).UTC(),
				Position:   feed.Position{Start: feed.FromTime(time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC))},
				Expiration: 90 * time.Second, TTL: 30 * time.Second,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := leasedoc.Unmarshal("P", []byte(c.doc))
			if string(got.Raw) != c.doc {
				t.Errorf("Raw = %s", got.Raw)
			}
			c.want.ID, c.want.Raw = "P.."+c.want.Token, got.Raw
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("Unmarshal\n got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestMarkersAndHostsRead(t *testing.T) {
	for doc, want := range map[string]feed.Record{
		`{"id":"P.info"}`:          {Kind: feed.KindInfo, ID: "P.info"},
		`{"id":"P.lock","ttl":30}`: {Kind: feed.KindLock, ID: "P.lock", TTL: 30 * time.Second},
		`{"id":"P.host.a~2Fb","Owner":"a/b","properties":{"changefeed.epoch":"a/b/1","w":"2"},"ttl":60}`: {
			Kind: feed.KindHost, ID: "P.host.a~2Fb", Token: "a/b", Owner: "a/b", Epoch: "1", TTL: time.Minute,
			Properties: map[string]string{"w": "2"},
		},
	} {
		got := leasedoc.Unmarshal("P", []byte(doc))
		want.Raw = got.Raw
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Unmarshal\n got %+v\nwant %+v", got, want)
		}
	}
}

func TestTimestampsOfEveryProcessorRead(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-03-04T23:55:16.5233511Z":            touched,
		"2026-03-04T23:55:16Z":                    touched.Truncate(time.Second),
		"2023-01-01T00:00:00.123Z[UTC]":           time.Date(2023, 1, 1, 0, 0, 0, 123e6, time.UTC),
		"2023-01-01T00:00Z[UTC]":                  time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC),
		"2023-01-01T01:00:00+01:00[Europe/Paris]": time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC),
		"2023-01-01T00:00:00.5":                   time.Date(2023, 1, 1, 0, 0, 0, 5e8, time.UTC),
	} {
		got := leasedoc.Unmarshal("P", []byte(`{"id":"P..0","LeaseToken":"0","timestamp":"`+text+`"}`))
		if got.Err != nil || !got.Timestamp.Equal(want) {
			t.Errorf("%s reads as %v, %v", text, got.Timestamp, got.Err)
		}
	}
}

// documented is the encoding of a real state with start NOW and token "42".
const documented = "eyJWIjoxLCJSaWQiOiIvZGJzL29yZGVycy9jb2xscy9pdGVtcyIsIk1vZGUiOiJJTkNSRU1FTlRBTCIsIlN0YXJ0RnJvbSI6eyJUeXBlIjoiTk9XIn0sIkNvbnRpbnVhdGlvbiI6eyJWIjoxLCJSaWQiOiIvZGJzL29yZGVycy9jb2xscy9pdGVtcyIsIkNvbnRpbnVhdGlvbiI6W3sidG9rZW4iOiJcIjQyXCIiLCJyYW5nZSI6eyJtaW4iOiIiLCJtYXgiOiJGRiJ9fV0sIlJhbmdlIjp7Im1pbiI6IiIsIm1heCI6IkZGIiwiaXNNaW5JbmNsdXNpdmUiOnRydWUsImlzTWF4SW5jbHVzaXZlIjpmYWxzZX19fQ=="

func javaDoc(state string) string {
	return `{"id":"P..-FF","_etag":null,"LeaseToken":"-FF","ContinuationToken":"` + state +
		`","timestamp":"2022-11-15T17:43:34.634427Z",` +
		`"Owner":"host-a","version":1,"feedRange":{"Range":{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}}}`
}

func TestJavaLeasesReadButAreMarked(t *testing.T) {
	state := func(start, rest string) string {
		// The rid makes the two alphabets differ.
		return `{"V":1,"Rid":"~~~???","Mode":"FULL_FIDELITY","StartFrom":{"Type":` + start + `}` + rest + `}`
	}
	at := func(token string) string { return `,"Continuation":{"Continuation":[{"token":` + token + `}]}` }
	long := time.UnixMilli(1700000000123)
	for _, c := range []struct {
		state string
		want  feed.Position
	}{
		{state(`"BEGINNING"`, at(`"\"11\""`)), feed.Position{Token: `"11"`, Start: feed.FromBeginning()}},
		{state(`"BEGINNING"`, `,"Range":{"min":"","max":"FF"}`), feed.Position{Start: feed.FromBeginning()}},
		{state(`"NOW"`, at(`null`)), feed.Position{}},
		{
			state(`"POINT_IN_TIME","PointInTimeMs":1700000000123`, at(`"\"5\""`)),
			feed.Position{Token: `"5"`, Start: feed.FromTime(long)},
		},
		{state(`"LEASE","Etag":"\"9\""`, ""), feed.At(`"9"`)},
		{state(`"LEASE","Etag":"\"9\""`, at(`"\"11\""`)), feed.At(`"11"`)},
		{state(`"LEGACY_CHECKPOINT","Etag":"\"9\""`, ""), feed.At(`"9"`)},
	} {
		for _, enc := range []*base64.Encoding{
			base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding,
			base64.RawURLEncoding,
		} {
			got := leasedoc.Unmarshal("P", []byte(javaDoc(enc.EncodeToString([]byte(c.state)))))
			if !errors.Is(got.Err, leasedoc.ErrJava) || !errors.Is(got.Err, feed.ErrBadLease) {
				t.Errorf("%s: Err = %v, want ErrJava", c.state, got.Err)
			}
			if got.Position != c.want || got.Mode != feed.AllVersionsAndDeletes || got.Range != feed.FullRange() ||
				got.Owner != "host-a" {
				t.Errorf("%s: position %+v, mode %v, range %v, owner %q", c.state, got.Position, got.Mode, got.Range,
					got.Owner)
			}
		}
	}
}

func TestTheDocumentedJavaStateReads(t *testing.T) {
	got := leasedoc.Unmarshal("P", []byte(javaDoc(documented)))
	if got.Position != feed.At(`"42"`) || got.Mode != feed.LatestVersion || !errors.Is(got.Err, leasedoc.ErrJava) {
		t.Errorf("position %+v, mode %v, %v", got.Position, got.Mode, got.Err)
	}
	fresh := strings.Replace(javaDoc(""), `"ContinuationToken":""`, `"ContinuationToken":null`, 1)
	if got := leasedoc.Unmarshal("P", []byte(fresh)); !errors.Is(got.Err, leasedoc.ErrJava) {
		t.Errorf("a Java lease before its first checkpoint: Err = %v, want ErrJava", got.Err)
	}
}

// encoded is a state as Java's leases have it.
func encoded(state string) string { return base64.StdEncoding.EncodeToString([]byte(state)) }

func TestBrokenDocumentsTellWhatIsWrong(t *testing.T) {
	const rest = `"id":"P..0","LeaseToken":"0"`
	for doc, wants := range map[string][]string{
		``:                                       {"not a JSON object"},
		`[]`:                                     {"not a JSON object"},
		`{"id":"P..7","Owner":`:                  {"near byte 21", "token:7"},
		`{"id":"P..7"} {}`:                       {"near byte 14", "token:7"},
		`{"id":"P..7","Owner":"a"}`:              {"LeaseToken is missing", "token:7"},
		`{"id":"Q..0"}`:                          {`id is "Q..0"`, `"P.."`},
		`{"id":7,"LeaseToken":"0"}`:              {"id is 7", "a string"},
		`{"id":"P..1","LeaseToken":"0"}`:         {`id is "P..1"`, `"P..0"`},
		`{"id":"P.host.a/b"}`:                    {`id is "P.host.a/b"`, "a~2Fb", "token:a/b"},
		`{` + rest + `,"Owner":7}`:               {"Owner is 7: want a string"},
		`{` + rest + `,"version":"1"}`:           {`version is "1"`},
		`{` + rest + `,"version":2}`:             {"version is 2", "0 to 1"},
		`{` + rest + `,"version":1}`:             {`LeaseToken is "0"`, "min-max"},
		`{` + rest + `,"Mode":"x"}`:              {`Mode is "x"`, "Incremental Feed"},
		`{` + rest + `,"ttl":1.5}`:               {"ttl is 1.5"},
		`{` + rest + `,"_ts":-1}`:                {"_ts is -1"},
		`{` + rest + `,"properties":1}`:          {"properties is 1"},
		`{` + rest + `,"timestamp":"yesterday"}`: {`timestamp is "yesterday"`, "2026-"},
		`{` + rest + `,"timestamp":"9999-12-31T23:59:59-01:00"}`: {"timestamp"},
		`{` + rest +
			`,"FeedRange":"-FF"}`: {`FeedRange is "-FF"`},
		`{` + rest +
			`,"FeedRange":{}}`: {"FeedRange is {}"},
		`{` + rest + `,"FeedRange":{"Range":{"min":""}}}`:            {"FeedRange is"},
		`{` + rest + `,"FeedRange":{"Range":{"min":"FF","max":""}}}`: {"min below max"},
		`{` + rest + `,"FeedRange":{"Range":{"min":"","max":"zz"}}}`: {"hex"},
		`{` + rest +
			`,"FeedRange":{"Range":{"min":"","max":"FF","isMaxInclusive":true}}}`: {"includes its minimum"},
		`{` + rest +
			`,"FeedRange":{"Range":{"min":"","max":"FF","isMinInclusive":false}}}`: {"includes its minimum"},
		`{"id":"P..-3F","version":1,"LeaseToken":"-3F","FeedRange":{"Range":{"min":"","max":"FF"}}}`: {"FeedRange is -FF", "-3F"},
		`{` + rest +
			`,"properties":{"changefeed.attempts":"-1"}}`: {"properties.changefeed.attempts", `"3 after `},
		`{` + rest + `,"properties":{"changefeed.epoch":"e"}}`:        {"properties.changefeed.epoch"},
		`{` + rest + `,"properties":{"changefeed.start":"then"}}`:     {"properties.changefeed.start"},
		`{` + rest + `,"properties":{"changefeed.state":"a b"}}`:      {"properties.changefeed.state"},
		`{` + rest + `,"properties":{"changefeed.fence":true}}`:       {"properties.changefeed.fence is true"},
		`{` + rest + `,"properties":{"changefeed.expiration":"-1s"}}`: {"properties.changefeed.expiration"},
		javaDoc("eyJWIjox"): {"ContinuationToken"},
		javaDoc("eyJWI"):    {"ContinuationToken"},
		javaDoc(encoded(`{"StartFrom":{"Type":"x"}}`)): {"StartFrom.Type is x"},

		javaDoc(encoded(`{"StartFrom":{"Type":"NOW"},"Continuation":{"Continuation":[{},{}]}}`)): {"one token"},
		javaDoc(encoded(`{"Mode":"x","StartFrom":{"Type":"NOW"}}`)):                              {"Mode"},
		javaDoc(encoded(`{"StartFrom":{"Type":"POINT_IN_TIME","PointInTimeMs":-1}}`)):            {"PointInTimeMs"},

		// What is wrong with one of Java's spelling, and with times that could not be written again.
		`{` + rest + `,"version":1,"FeedRange":{"Range":{"min":"","max":"FF"}}}`: {
			`LeaseToken is "0"`,
			"min-max",
		},
		`{"id":"P..-3F","version":1,"LeaseToken":"-3F","FeedRange":{"PKRangeId":"0"}}`: {
			"FeedRange is",
			"min below max",
		},
		`{` + rest +
			`,"properties":{"changefeed.start":"at 9999-12-31T23:59:59-01:00"}}`: {"properties.changefeed.start"},
		`{` + rest + `,"properties":{"changefeed.fence":"#-1"}}`:              {"properties.changefeed.fence"},
		`{` + rest + `,"properties":{"changefeed.fence":"#253402300800000"}}`: {"properties.changefeed.fence"},

		`{"id":"P..-3F","version":1,"LeaseToken":"-3F","properties":{},"feedRange":{"Range":{"min":"","max":"FF"}}}`: {"FeedRange is -FF", "-3F"},
		javaDoc(encoded(`{"StartFrom":{"Type":"POINT_IN_TIME","PointInTimeMs":253402300800000}}`)):                   {"PointInTimeMs"},
	} {
		got := leasedoc.Unmarshal("P", []byte(doc))
		if !errors.Is(got.Err, feed.ErrBadLease) || errors.Is(got.Err, leasedoc.ErrJava) {
			t.Errorf("%s: Err = %v, want ErrBadLease", doc, got.Err)
			continue
		}
		if java := strings.Contains(doc, `"host-a"`); errors.Is(got.Err, feed.ErrForeignLease) != java {
			t.Errorf("%s: Err = %v, want ErrForeignLease of a Java lease alone, also of a broken one", doc, got.Err)
		}
		text := got.Err.Error() + " token:" + got.Token
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s:\n got %s\nwant %q in it", doc, text, want)
			}
		}
	}
}

// Whoever has read a document may use the memory of its text for the next one.
func TestARecordKeepsItsDocument(t *testing.T) {
	doc := []byte(`{"id":"P..0","LeaseToken":"0","note":7}`)
	l := leasedoc.Unmarshal("P", doc)
	clear(doc)
	if got, err := leasedoc.Marshal("P", "/id", l); err != nil || !strings.Contains(string(got), `"note":7`) {
		t.Errorf("Marshal = %s, %v, want the note that was read", got, err)
	}
}
