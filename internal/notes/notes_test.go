package notes

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The partitions after 0 was split into 1 and 2, and 2 into 3 and 4; 5 and 6 were merged into 7.
var world = []Partition{
	{ID: "1", Min: "", Max: "10", Parents: []string{"0"}},
	{ID: "3", Min: "10", Max: "18", Parents: []string{"0", "2"}},
	{ID: "4", Min: "18", Max: "20", Parents: []string{"0", "2"}},
	{ID: "7", Min: "20", Max: "FF", Parents: []string{"5", "6"}},
}

func TestWhatIsDoneCountsWhereItWasWritten(t *testing.T) {
	note := func(partition string) string {
		return Done{At: `"7"`, Partition: partition, Through: 9, Open: []int64{8}}.String()
	}
	for _, c := range []struct {
		name, text, from, to string
		want                 error
	}{
		{"the same partition", note("1 -10"), "", "10", nil},
		{"a part of it", note("1 -10"), "04", "08", nil},
		{"a child", note("2 10-20"), "10", "18", nil},
		{"a part of a child", note("2 10-20"), "1A", "1C", nil},
		{"a grandchild", note("0 -20"), "10", "18", nil}, // a write under its own parent would name that
		{"across children", note("2 10-20"), "10", "20", ErrMoved},
		{"another partition", note("2 10-20"), "04", "08", ErrMoved},
		{"a merge, of its last parent", note("6 80-FF"), "80", "FF", ErrMoved},
		{"a merge, of its first parent", note("5 20-80"), "20", "80", ErrMoved},
		{"an id that was used again", note("1 -20"), "", "10", ErrMoved},
		{"no partition then", note(Unknown), "", "10", ErrMoved},
		{"no partition then, nor now", note(Unknown), "", "FF", ErrMoved},
		{"no name", note(""), "", "10", ErrMoved},
		{"a name without keys", note("0"), "", "10", ErrMoved},
		{"nothing", "", "", "10", nil},
		{
			"another position", Done{At: `"6"`, Partition: "1 -10", Through: 9, Open: []int64{8}}.String(), "", "10",
			ErrMoved,
		},
	} {
		got, err := ReadDone(c.text, Place{`"7"`, 7, c.from, c.to, world})
		if !errors.Is(err, c.want) || (err == nil && c.text != "") != (got.Through == 9 && len(got.Open) == 1) {
			t.Errorf("%s: %+v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

// LSNs count on through splits, and not through a merge, wherever on the way that was.
func TestLSNsCountOnThroughSplitsAlone(t *testing.T) {
	p := func(id, from, to string, parents ...string) Partition { return Partition{id, from, to, parents} }
	for _, c := range []struct {
		name       string
		of         string // the partition that LSNs are of
		from, to   string
		partitions []Partition
		want       bool
	}{
		{"three splits", "0 -80", "", "10", []Partition{
			p("5", "", "10", "0", "1", "3"),
			p("6", "10", "20", "0", "1", "3"), p("4", "20", "40", "0", "1"), p("2", "40", "80", "0"),
		}, true},
		{
			"three splits, beside a merge", "0 -80", "", "10",
			[]Partition{
				p("5", "", "10", "0", "1", "3"), p("6", "10", "20", "0", "1", "3"),
				p("4", "20", "40", "0", "1"), p("9", "40", "FF", "0", "2", "8"),
			},
			true,
		},
		{"both halves merged", "0 -80", "", "80", []Partition{p("3", "", "80", "0", "1", "2")}, false},
		{"both halves merged and split again", "0 -80", "", "40", []Partition{
			p("4", "", "40", "0", "1", "2", "3"),
			p("5", "40", "80", "0", "1", "2", "3"),
		}, false},
		{
			"since the merge", "3 -80", "", "20",
			[]Partition{
				p("6", "", "20", "0", "1", "2", "3", "4"), p("7", "20", "40", "0", "1", "2", "3", "4"),
				p("5", "40", "80", "0", "1", "2", "3"),
			},
			true,
		},
		{
			"quarters merged across halves", "0 -80", "20", "60",
			[]Partition{
				p("3", "", "20", "0", "1"), p("7", "20", "60", "0", "1", "4", "2", "5"),
				p("6", "60", "80", "0", "2"),
			},
			false,
		},
		{
			"quarters merged across halves, in another order", "0 -80", "20", "60",
			[]Partition{
				p("3", "", "20", "0", "1"), p("7", "20", "60", "0", "1", "2", "4", "5"),
				p("6", "60", "80", "0", "2"),
			},
			false,
		},
		{
			"the quarter that was merged", "4 20-40", "20", "60",
			[]Partition{
				p("3", "", "20", "0", "1"), p("7", "20", "60", "0", "1", "4", "2", "5"),
				p("6", "60", "80", "0", "2"),
			},
			false,
		},
	} {
		if got := counts(c.of, c.from, c.to, c.partitions); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestABadNoteSaysNothing(t *testing.T) {
	for _, text := range []string{
		"{", "[]", `{"at":7}`,
		`{"at":"\"7\"","partition":"1 -10","through":9,"open":["x"],"keys":[1]}`, "nonsense",
	} {
		d, err := ReadDone(text, Place{`"7"`, 7, "", "10", world})
		if err == nil || !reflect.DeepEqual(d, Done{}) {
			t.Errorf("%s is read as %+v, %v", text, d, err)
		}
		h, err := ReadHeld(text, Place{`"7"`, 7, "", "FF", nil})
		if err == nil || h.Keys != nil {
			t.Errorf("%s is read as %+v, %v", text, h, err)
		}
	}
}

func TestHeldKeysAreThoseOfAPosition(t *testing.T) {
	whole := []Partition{{ID: "0", Max: "FF"}}
	halves := []Partition{
		{ID: "1", Max: "1F", Parents: []string{"0"}},
		{ID: "2", Min: "1F", Max: "FF", Parents: []string{"0"}},
	}
	merged := []Partition{{ID: "3", Max: "FF", Parents: []string{"0", "1", "2"}}}
	text := Held{
		At: `"7"`, Partition: Name("", "FF", whole), Keys: []string{`["oslo"]`, `["<rome>"]`},
		Since: []int64{8, 9},
	}.String()
	for _, c := range []struct {
		name       string
		to         string
		partitions []Partition
		since      []int64
	}{
		{"in its partition", "FF", whole, []int64{8, 9}},
		{"in a child", "1F", halves, []int64{8, 9}},
		{"in another one", "FF", merged, []int64{0, 0}},
		{"when the partitions are not known", "FF", nil, []int64{0, 0}},
	} {
		h, err := ReadHeld(text, Place{`"7"`, 7, "", c.to, c.partitions})
		if err != nil || strings.Join(h.Keys, " ") != `["oslo"] ["<rome>"]` || !slices.Equal(h.Since, c.since) {
			t.Errorf("%s: %+v, %v", c.name, h, err)
		}
	}
	if h, err := ReadHeld(`{"at":"\"7\"","keys":["[\"oslo\"]"]}`, Place{`"7"`, 7, "", "FF", whole}); err != nil ||
		!slices.Equal(h.Since, []int64{0}) {
		t.Errorf("of an older version: %+v, %v", h, err)
	}
	if h, err := ReadHeld(text, Place{`"7"`, 7, "", "FF", whole}); err != nil || len(h.Keys) != 2 {
		t.Errorf("%s is read as %+v, %v", text, h, err)
	}
	short := Held{
		At: `"7"`, Partition: Name("", "FF", whole), Keys: []string{`["oslo"]`, `["rome"]`},
		Since: []int64{8},
	}.String()
	if h, err := ReadHeld(short, Place{`"7"`, 7, "", "FF", whole}); err != nil ||
		!slices.Equal(h.Since, []int64{0, 0}) {
		t.Errorf("with one LSN of two keys: %+v, %v, want both unknown", h, err)
	}
	if h, err := ReadHeld(text, Place{`"8"`, 8, "", "FF", whole}); !errors.Is(err, ErrMoved) || h.Keys != nil {
		t.Errorf("at another position: %+v, %v", h, err)
	}
	if h, err := ReadHeld("", Place{`"7"`, 7, "", "FF", whole}); err != nil || h.Keys != nil {
		t.Errorf("without a note: %+v, %v", h, err)
	}
}

func TestANoteIsEmptyWhenThereIsNothingToSay(t *testing.T) {
	at := Done{At: `"7"`, Partition: "1 -10"}
	all, some, tried, suspect := at, at, at, at
	all.Through = 9 // the position is before it, though nothing is open: no position is known within a page
	some.Through, some.Open = 9, []int64{8}
	tried.Tried = []Run{{From: 8, To: 9, Calls: 3, Failures: 2}, {From: 11, To: 11, Calls: 1}}
	suspect.Suspect = &Suspect{
		Letter: "8.1", Changes: 2, Alone: true,
		Tried: []Run{{Key: "k", From: 8, To: 9, Calls: 3, Failures: 2, Failing: 7}},
	}
	for _, c := range []struct {
		done Done
		want string
	}{
		{at, ""},
		{all, `{"at":"\"7\"","partition":"1 -10","through":9}`},
		{some, `{"at":"\"7\"","partition":"1 -10","through":9,"open":[8]}`},
		{
			tried,
			`{"at":"\"7\"","partition":"1 -10","tried":[{"from":8,"to":9,"calls":3,"failures":2},{"from":11,"to":11,"calls":1}]}`,
		},
		{
			suspect,
			`{"at":"\"7\"","partition":"1 -10","suspect":{"letter":"8.1","changes":2,"alone":true,"tried":[{"key":"k","from":8,"to":9,"calls":3,"failures":2,"failing":7}]}}`,
		},
	} {
		if got := c.done.String(); got != c.want {
			t.Errorf("%+v is written %s, want %s", c.done, got, c.want)
		}
		if got, err := ReadDone(c.want, Place{`"7"`, 7, "", "10", world}); err != nil ||
			c.want != "" && !reflect.DeepEqual(got, c.done) {
			t.Errorf("%s is read as %+v, %v", c.want, got, err)
		}
	}
	if s := suspect.Suspect; s.First().Calls != 3 || s.To() != 9 {
		t.Errorf("the suspect begins with %+v and ends at LSN %d", s.First(), s.To())
	}
	if got := (Held{At: `"7"`}).String(); got != "" {
		t.Errorf("no key is written %s", got)
	}
	if got := (Aside{At: `"7"`, Partition: "1 -10"}).String(); got != "" {
		t.Errorf("no key that is set aside is written %s", got)
	}
	recalls := Aside{At: `"7"`, Partition: "1 -10", Recalls: []Recall{{Key: `["oslo"]`, Letter: "3.0", Done: true}}}
	if got, err := ReadAside(recalls.String(), Place{`"7"`, 7, "", "10", world}); err != nil ||
		!reflect.DeepEqual(got, recalls) {
		t.Errorf("letters to be recalled, and no key, are read as %+v, %v", got, err)
	}
}

// Whoever reads of a suspect takes its first and its last run.
func TestASuspectHasChangesAndRuns(t *testing.T) {
	for _, suspect := range []string{
		`{"letter":"8.1","changes":1}`,
		`{"letter":"8.1","tried":[{"from":8,"to":9,"calls":3}]}`,
	} {
		text := `{"at":"\"7\"","partition":"1 -10","suspect":` + suspect + `}`
		if got, err := ReadDone(text, Place{`"7"`, 7, "", "10", world}); err == nil || got.Suspect != nil {
			t.Errorf("suspect %s is read as %+v, %v", suspect, got.Suspect, err)
		}
	}
	two := &Suspect{Changes: 2, Tried: []Run{{From: 8, To: 8, Calls: 3}, {From: 9, To: 11, Calls: 1}}}
	if two.First().Calls != 3 || two.To() != 11 {
		t.Errorf("it begins with %+v and ends at LSN %d", two.First(), two.To())
	}
}

// A run is about the changes from one LSN to another of a key, or of all, and perhaps about some letters alone.
func TestARunIsAboutItsChanges(t *testing.T) {
	letter := func() string { return "9.1" }
	run := Run{From: 8, To: 9, Calls: 3, Failures: 2, Failing: 1_700_000_000}
	ofRome, ofAnother, ofIt := run, run, run
	ofRome.Key, ofAnother.Letters, ofIt.Letters = `["rome"]`, []string{"9.0"}, []string{"9.0", "9.1"}
	for _, c := range []struct {
		run  Run
		lsn  int64
		want bool
	}{
		{run, 7, false},
		{run, 8, true},
		{run, 9, true},
		{run, 10, false},
		{ofRome, 9, false},
		{ofAnother, 9, false},
		{ofIt, 9, true},
	} {
		if got := c.run.Has(`["oslo"]`, c.lsn, letter); got != c.want {
			t.Errorf("%+v has LSN %d of oslo: %v", c.run, c.lsn, got)
		}
	}
	later, more := run, run
	later.Failing++
	more.Failures++
	if other := (Run{From: 20, To: 20, Calls: 3, Failures: 2, Failing: run.Failing}); !run.IsLike(other) {
		t.Errorf("%+v is not like %+v", run, other)
	}
	for _, other := range []Run{ofRome, later, more} {
		if run.IsLike(other) {
			t.Errorf("%+v is like %+v", run, other)
		}
	}
}

func TestARequestIsReadAsItWasWritten(t *testing.T) {
	q := Request{Action: Retry, EPK: "1F", Key: `["oslo"]`, Letter: "7.0", Tries: 2}
	others := map[string]string{"theirs": "kept"}
	all := q.Properties(others)
	if got := ReadRequest(all); got != q || all["theirs"] != "kept" || len(others) != 1 {
		t.Errorf("%+v is read as %+v, among %v; others are %v", q, got, all, others)
	}
	again := q
	again.Tries++
	if q.Token() != again.Token() {
		t.Errorf("tokens %s, %s", q.Token(), again.Token())
	}
	if got := ReadRequest(again.Properties(all)); got != again { // all has what was written before
		t.Errorf("%+v is read as %+v", again, got)
	}
	for _, other := range []Request{ // keys may share an effective partition key
		{Release, q.EPK, q.Key, q.Letter, q.Tries},
		{q.Action, "2F", q.Key, q.Letter, q.Tries},
		{q.Action, q.EPK, `["rome"]`, q.Letter, q.Tries},
		{q.Action, q.EPK, q.Key, "8.0", q.Tries},
	} {
		if q.Token() == other.Token() {
			t.Errorf("%+v and %+v have one token, %s", q, other, q.Token())
		}
	}
	bad := maps.Clone(all)
	bad[triesProperty] = "x"
	if got := ReadRequest(bad); got.Tries != 0 {
		t.Errorf("tries %d of a bad number", got.Tries)
	}
}

// Open LSNs are written as differences, and a note whose differences are none is refused.
func TestOpenChangesAreWrittenAsDifferences(t *testing.T) {
	partitions := []Partition{{ID: "1", Max: "FF"}}
	d := Done{At: "7", Partition: Name("", "FF", partitions), Through: 130, Open: []int64{100, 101, 120}}
	text := d.String()
	if want := `{"at":"7","partition":"1 -FF","through":130,"open":[100,1,19]}`; text != want {
		t.Errorf("%s, want %s", text, want)
	}
	got, err := ReadDone(text, Place{"7", 7, "", "FF", partitions})
	if err != nil || !slices.Equal(got.Open, []int64{100, 101, 120}) || d.Open[2] != 120 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"[100,0]", "[-1]", "[100,1,-5]"} {
		if got, err := ReadDone(`{"at":"7","partition":"1 -FF","through":130,"open":`+bad+"}",
			Place{"7", 7, "", "FF", partitions}); err == nil || len(got.Open) > 0 {
			t.Errorf("%s: %+v, want an error", bad, got)
		}
	}
}

// The keys that are held are counted by what they take in the document of the lease, where the text of the property is
// escaped once more.
func TestAHeldKeyTakesNoMoreRoomThanIsCounted(t *testing.T) {
	size := func(keys ...string) int {
		h := Held{At: `"7"`, Partition: "1 -10", Keys: append([]string{"first"}, keys...), Since: []int64{1}}
		for range keys {
			h.Since = append(h.Since, math.MaxInt64)
		}
		document, err := json.Marshal(map[string]string{HeldProperty: h.String()})
		if err != nil {
			t.Fatal(err)
		}
		return len(document)
	}
	for _, key := range []string{
		"", `["oslo"]`, strings.Repeat("k", 2000), strings.Repeat(`"`, 100),
		strings.Repeat(`\`, 100), "<é\u2028&\x00\x7f>\n\t", `["\"\\\""]`,
	} {
		if takes := size(key) - size(); takes > HeldBytes(key) {
			t.Errorf("%.20q takes %d bytes, and %d are counted", key, takes, HeldBytes(key))
		}
	}
}

// So are the keys that are set aside, with their positions and without their runs.
func TestAKeyThatIsSetAsideTakesNoMoreRoomThanIsCounted(t *testing.T) {
	size := func(keys ...string) int {
		a := Aside{At: `"7"`, Partition: "1 -10", Keys: []AsideKey{{Key: "first"}}}
		for _, key := range keys {
			k := AsideKey{
				Key: key, From: `"9223372036854775807"`, LSN: math.MaxInt64, Last: math.MaxInt64,
				Covered: math.MaxInt64, Passed: true,
			}
			a.Keys = append(a.Keys, k)
		}
		document, err := json.Marshal(map[string]string{AsideProperty: a.String()})
		if err != nil {
			t.Fatal(err)
		}
		return len(document)
	}
	for _, key := range []string{
		"", `["oslo"]`, strings.Repeat("k", 2000), strings.Repeat(`"`, 1000),
		strings.Repeat(`\`, 1000),
	} {
		if takes := size(key) - size(); takes > AsideBytes(key) {
			t.Errorf("%.20q takes %d bytes, and %d are counted", key, takes, AsideBytes(key))
		}
	}
}

func aside() Aside {
	return Aside{
		At: `"7"`, Partition: "2 10-20", Recalls: []Recall{{Key: `["oslo"]`, Letter: "3.0"}},
		Keys: []AsideKey{
			{
				Key: `["oslo"]`, From: `"2"`, LSN: 4, Last: 9, Covered: 5, Passed: true,
				Tried: []Run{{From: 4, To: 5, Calls: 2, Failures: 1, Failing: 1700000000}},
			},
			{Key: `["rome"]`, From: `"7"`, LSN: 9},
		},
	}
}

func TestKeysThatAreSetAsideAreReadAsTheyWereWritten(t *testing.T) {
	want := aside()
	if got, err := ReadAside(want.String(), Place{`"7"`, 7, "10", "18", world}); err != nil ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("%s is read as %+v, %v", want, got, err)
	}
	if got := want.Keys[0].Tried[0].FailingSince(); !got.Equal(time.Unix(1700000000, 0)) ||
		!(Run{}).FailingSince().IsZero() {
		t.Errorf("failing since %v and %v", got, Run{}.FailingSince())
	}
	if got, err := ReadAside("", Place{}); err != nil || got.Keys != nil {
		t.Errorf("without a note: %+v, %v", got, err)
	}
	for _, text := range []string{"{", "[]", `{"at":7}`, `{"at":"\"7\"","keys":["x"]}`} {
		if got, err := ReadAside(text, Place{`"7"`, 7, "10", "18", world}); err == nil || errors.Is(err, ErrMoved) ||
			got.Keys != nil || got.Recalls != nil {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
	}
}

// Another processor that has moved the position has handled what comes after the old position. What the position had
// passed has been handled by nobody.
func TestKeysThatThePositionHadPassedStaySetAside(t *testing.T) {
	want := aside().Keys[:1]
	want[0].Covered = 8
	got, err := ReadAside(aside().String(), Place{`"8"`, 8, "10", "18", world})
	if !errors.Is(err, ErrMoved) || len(got.Recalls) > 0 || !reflect.DeepEqual(got.Keys, want) {
		t.Errorf("read as %+v, %v, want the key with changes before the position", got, err)
	}
}

// LSNs mean nothing in another partition. The keys are set aside all the same, and all of them is read again.
func TestInAnotherPartitionKeysThatAreSetAsideHaveNoLSN(t *testing.T) {
	for lsn, position := range map[int64]string{7: `"7"`, 8: `"8"`} {
		got, err := ReadAside(aside().String(), Place{position, lsn, "20", "FF", world})
		if moved := position != `"7"`; errors.Is(err, ErrMoved) != moved ||
			len(got.Keys) != map[bool]int{true: 1, false: 2}[moved] {
			t.Errorf("at %s: read as %+v, %v", position, got, err)
		}
		for i, k := range got.Keys {
			before := aside().Keys[i]
			if k.LSN != 0 || k.Last != 0 || k.Covered != lsn || k.Tried != nil || k.Key != before.Key ||
				k.From != before.From {
				t.Errorf("at %s: %+v, want its LSNs unknown and the rest as before", position, k)
			}
		}
	}
}

// Other processors rewrite texts that look like a time or a number.
func TestAnOutageIsATextThatIsReadBack(t *testing.T) {
	since := time.Unix(1700000000, 0)
	text := Outage(since)
	if got := ReadOutage(text); !got.Equal(since) {
		t.Errorf("%q is read as %v", text, got)
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		t.Errorf("%q is a number", text)
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly, time.RFC1123} {
		if _, err := time.Parse(layout, text); err == nil {
			t.Errorf("%q is a time", text)
		}
	}
	if Outage(time.Time{}) != "" {
		t.Errorf("no outage is written %q", Outage(time.Time{}))
	}
	for _, text := range []string{"", "since", "since then", "2026-01-01T00:00:00Z", "until 7"} {
		if got := ReadOutage(text); !got.IsZero() {
			t.Errorf("%q is an outage since %v", text, got)
		}
	}
}
