package leasedoc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/leasedoc"
	"github.com/millrace/changefeed/internal/notes"
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
	for _, bad := range []string{"", "-1", "three", `-1 after "1083"`, ` after "1083"`, `3after "1083"`, `3 before "1083"`, "99999999999 after "} {
		doc := fmt.Sprintf(`{"id":"P..0","LeaseToken":"0","ContinuationToken":"\"1083\"","properties":{"changefeed.attempts":%q}}`, bad)
		if l := leasedoc.Unmarshal("P", []byte(doc)); !errors.Is(l.Err, changefeed.ErrBadLease) || l.Attempts != 0 {
			t.Errorf("%q is read as %d, %v", bad, l.Attempts, l.Err)
		}
	}
}

// everyProperty is a lease with each property that is written for one.
func everyProperty() changefeed.Record {
	at := notes.Place{Position: `"1083"`, Max: "FF", Partitions: []notes.Partition{{ID: "0", Max: "FF"}}}
	partition := notes.Name(at.Min, at.Max, at.Partitions)
	return changefeed.Record{
		Kind: changefeed.KindLease, Token: "-FF", Version: 1, Range: changefeed.FullRange(), Owner: "a", Epoch: "17", Attempts: 3,
		Position: changefeed.Position{Token: at.Position, Start: changefeed.FromTime(touched)}, State: changefeed.StateSplitting,
		Fence: touched, Expiration: time.Minute,
		Properties: map[string]string{
			notes.DoneProperty:       notes.Done{At: at.Position, Partition: partition, Through: 9, Open: []int64{8}}.String(),
			notes.HeldProperty:       notes.Held{At: at.Position, Partition: partition, Keys: []string{`["oslo"]`}, Since: []int64{7}}.String(),
			notes.AsideProperty:      notes.Aside{At: at.Position, Partition: partition, Keys: []notes.AsideKey{{Key: `["rome"]`, From: `"2"`, LSN: 4}}}.String(),
			notes.OutageProperty:     notes.Outage(touched),
			notes.TermProperty:       "17",
			notes.GenerationProperty: "2",
			notes.PartsProperty:      "-1F 1F-FF",
			notes.DueProperty:        notes.Due{By: touched.Add(time.Second), Sent: touched}.String(),
		},
	}
}

// looksLike says what a JSON library may take a string for: Newtonsoft's takes a text of 19 to 40 characters for a date if
// it begins with a digit, has a T at its place and can be parsed.
func looksLike(text string) string {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return "number"
	}
	if len(text) >= 19 && len(text) <= 40 && text[0] >= '0' && text[0] <= '9' && text[10] == 'T' || strings.HasPrefix(text, "/Date(") {
		return "date"
	}
	for _, layout := range []string{time.DateTime, time.DateOnly, time.RFC1123, time.RFC850, time.Kitchen} {
		if _, err := time.Parse(layout, text); err == nil {
			return "date"
		}
	}
	return ""
}

func propertiesOf(t *testing.T, doc []byte) (properties map[string]string) {
	t.Helper()
	var lease struct{ Properties map[string]string }
	if err := json.Unmarshal(doc, &lease); err != nil {
		t.Fatal(err)
	}
	return lease.Properties
}

// A processor of another make, or a script, may rewrite what looks like a date or a number. These properties do, and no
// others. A new one must not.
func TestWhichPropertiesLookLikeADateOrANumber(t *testing.T) {
	doc, err := leasedoc.Marshal("P", "/id", everyProperty())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"changefeed.start": "date", "changefeed.fence": "number", notes.TermProperty: "number", notes.GenerationProperty: "number",
	}
	got, all := map[string]string{}, propertiesOf(t, doc)
	for name, text := range all {
		if like := looksLike(text); like != "" {
			got[name] = like
		}
	}
	if !maps.Equal(got, want) || len(all) != 14 {
		t.Errorf("of %d properties these look like something else: %v, want %v", len(all), got, want)
	}
}

// What becomes of a lease whose date is written in the words of .NET: nothing is read wrong in silence, and only the start
// makes the lease unusable.
func TestALeaseWhoseDatesWereRewritten(t *testing.T) {
	doc, err := leasedoc.Marshal("P", "/id", everyProperty())
	if err != nil {
		t.Fatal(err)
	}
	all := propertiesOf(t, doc)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before := string(mustJSON(t, name)) + ":" + string(mustJSON(t, all[name]))
		if looksLike(all[name]) != "date" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, all[name])
		if err != nil {
			t.Fatal(err)
		}
		after := string(mustJSON(t, name)) + ":" + string(mustJSON(t, at.Format("01/02/2006 15:04:05")))
		rewritten := strings.Replace(string(doc), before, after, 1)
		l := leasedoc.Unmarshal("P", []byte(rewritten))
		if refused := errors.Is(l.Err, changefeed.ErrBadLease); rewritten == string(doc) || refused != (name == "changefeed.start") {
			t.Errorf("%s: %v", after, l.Err)
		}
	}
}

func mustJSON(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
