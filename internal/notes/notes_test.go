package notes

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
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
		{"a grandchild", note("0 -20"), "10", "18", ErrMoved}, // what its own parent had done is not known
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
		{"another position", Done{At: `"6"`, Partition: "1 -10", Through: 9, Open: []int64{8}}.String(), "", "10", ErrMoved},
	} {
		got, err := ReadDone(c.text, `"7"`, c.from, c.to, world)
		if !errors.Is(err, c.want) || (err == nil && c.text != "") != (got.Through == 9 && len(got.Open) == 1) {
			t.Errorf("%s: %+v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestABadNoteSaysNothing(t *testing.T) {
	for _, text := range []string{"{", "[]", `{"at":7}`, `{"at":"\"7\"","partition":"1 -10","through":9,"open":["x"],"keys":[1]}`, "nonsense"} {
		d, err := ReadDone(text, `"7"`, "", "10", world)
		if err == nil || !reflect.DeepEqual(d, Done{}) {
			t.Errorf("%s is read as %+v, %v", text, d, err)
		}
		h, err := ReadHeld(text, `"7"`, "", "FF", nil)
		if err == nil || h.Keys != nil {
			t.Errorf("%s is read as %+v, %v", text, h, err)
		}
	}
}

func TestHeldKeysAreThoseOfAPosition(t *testing.T) {
	whole := []Partition{{ID: "0", Max: "FF"}}
	halves := []Partition{{ID: "1", Max: "1F", Parents: []string{"0"}}, {ID: "2", Min: "1F", Max: "FF", Parents: []string{"0"}}}
	merged := []Partition{{ID: "3", Max: "FF", Parents: []string{"0", "1", "2"}}}
	text := Held{At: `"7"`, Partition: Name("", "FF", whole), Keys: []string{`["oslo"]`, `["<rome>"]`}, Since: []int64{8, 9}}.String()
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
		h, err := ReadHeld(text, `"7"`, "", c.to, c.partitions)
		if err != nil || strings.Join(h.Keys, " ") != `["oslo"] ["<rome>"]` || !slices.Equal(h.Since, c.since) {
			t.Errorf("%s: %+v, %v", c.name, h, err)
		}
	}
	if h, err := ReadHeld(`{"at":"\"7\"","keys":["[\"oslo\"]"]}`, `"7"`, "", "FF", whole); err != nil || !slices.Equal(h.Since, []int64{0}) {
		t.Errorf("of an older version: %+v, %v", h, err)
	}
	if h, err := ReadHeld(text, `"7"`, "", "FF", whole); err != nil || len(h.Keys) != 2 {
		t.Errorf("%s is read as %+v, %v", text, h, err)
	}
	if h, err := ReadHeld(text, `"8"`, "", "FF", whole); !errors.Is(err, ErrMoved) || h.Keys != nil {
		t.Errorf("at another position: %+v, %v", h, err)
	}
	if h, err := ReadHeld("", `"7"`, "", "FF", whole); err != nil || h.Keys != nil {
		t.Errorf("without a note: %+v, %v", h, err)
	}
}

func TestANoteIsEmptyWhenThereIsNothingToSay(t *testing.T) {
	at := Done{At: `"7"`, Partition: "1 -10"}
	all, some, suspect := at, at, at
	all.Through = 9 // without a gap: the position says it
	some.Through, some.Open = 9, []int64{8}
	suspect.Through, suspect.Suspect = 9, &Suspect{LSN: 8, Letter: "8.1", Changes: 2, Attempts: 3, Alone: true}
	for _, c := range []struct {
		done Done
		want string
	}{
		{at, ""},
		{all, ""},
		{some, `{"at":"\"7\"","partition":"1 -10","through":9,"open":[8]}`},
		{suspect, `{"at":"\"7\"","partition":"1 -10","suspect":{"lsn":8,"letter":"8.1","to":0,"changes":2,"attempts":3,"alone":true}}`},
	} {
		if got := c.done.String(); got != c.want {
			t.Errorf("%+v is written %s, want %s", c.done, got, c.want)
		}
	}
	if got := (Held{At: `"7"`}).String(); got != "" {
		t.Errorf("no key is written %s", got)
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
	if q.Token() != again.Token() || q.Token() == (Request{Action: Release, EPK: "1F"}).Token() {
		t.Errorf("tokens %s, %s", q.Token(), again.Token())
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
	got, err := ReadDone(text, "7", "", "FF", partitions)
	if err != nil || !slices.Equal(got.Open, []int64{100, 101, 120}) || d.Open[2] != 120 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"[100,0]", "[-1]", "[100,1,-5]"} {
		if got, err := ReadDone(`{"at":"7","partition":"1 -FF","through":130,"open":`+bad+"}", "7", "", "FF", partitions); err == nil || len(got.Open) > 0 {
			t.Errorf("%s: %+v, want an error", bad, got)
		}
	}
}

func TestALeaseHasRoomForSoManyAndSoLongKeys(t *testing.T) {
	for _, c := range []struct {
		keys int
		key  string
		fits bool
	}{{MaxHeld, `["oslo"]`, true}, {MaxHeld + 1, `["oslo"]`, false}, {100, strings.Repeat("k", 2000), true}, {200, strings.Repeat("k", 2000), false}, {100, strings.Repeat(`"`, 2000), false}} {
		h := Held{At: `"7"`}
		for range c.keys {
			h.Keys, h.Since = append(h.Keys, c.key), append(h.Since, 1)
		}
		if h.Fits() != c.fits {
			t.Errorf("%d keys like %.20q: fits %v, want %v", c.keys, c.key, h.Fits(), c.fits)
		}
	}
}
