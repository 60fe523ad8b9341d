package notes

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestAnOutcomeIsReadAsItWasWritten(t *testing.T) {
	asked := Request{Action: Retry, Key: `["k"]`, Letter: "1.0", Tries: 2}
	before := Set(SetWaits(asked.Properties(map[string]string{"team": "red"}), "no letter box"), UnsureProperty, "1.0")
	for _, o := range []Outcome{
		{Result: Handled, Count: 3},
		{Result: Failed, Cause: "broken", Count: 1, Left: 4},
		{Result: Nothing, Left: UnknownLeft},
	} {
		p := o.Properties(before)
		got, ok := ReadOutcome(p)
		if got != o || !ok {
			t.Errorf("got %+v, %v, want %+v", got, ok, o)
		}
		if p["team"] != "red" || p[WaitsProperty] != "" || p[UnsureProperty] != "" || ReadRequest(p) != asked {
			t.Errorf("other properties: %v", p)
		}
		// Asked again, nothing of the outcome is there, and nothing of a try.
		anew := asked.Anew(Set(p, UnsureProperty, "1.0"))
		if _, ok := ReadOutcome(anew); ok || len(anew) != len(asked.Properties(nil))+1 || anew["team"] != "red" {
			t.Errorf("asked anew: %v", anew)
		}
	}
	if before[WaitsProperty] != "no letter box" || before[OutcomeProperty] != "" {
		t.Errorf("what it was made of has changed: %v", before)
	}
}

// An outcome whose writer has not counted what is left, or not so that it can be read, says so.
func TestWhatIsLeftMayBeUnknown(t *testing.T) {
	for _, text := range []string{"", "some", "#-7"} {
		o, ok := ReadOutcome(map[string]string{OutcomeProperty: Failed, LeftProperty: text})
		if !ok || o.Left != UnknownLeft {
			t.Errorf("%q is read as %+v, %v", text, o, ok)
		}
	}
}

// Other programs write records again, and take a text that looks like a number or a time for one.
func TestNoTextOfARequestLooksLikeANumber(t *testing.T) {
	all := Request{Action: Retry, EPK: "05E1", Key: `["k"]`, Letter: "12.0", Tries: 2}.Properties(nil)
	for name, text := range (Outcome{Result: Handled, Count: 3, Left: 4}).Properties(all) {
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			t.Errorf("%s is %q, which is %v", name, text, n)
		}
	}
}

func TestATimeIsReadAsItWasGivenThoughOthersHaveRewrittenIt(t *testing.T) {
	for _, text := range []string{
		"2026-11-23T17:15:37Z", "2026-11-23T17:15:37.123456789Z", "2026-11-23T17:15:37+01:00",
		"beginning", "now", "",
	} {
		stored := PlainTime(text)
		if _, err := time.Parse(time.RFC3339Nano, stored); err == nil || TimeOf(stored) != text {
			t.Errorf("%q is stored as %q, and read as %q", text, stored, TimeOf(stored))
		}
	}
	// As an older version has stored it, and as .NET has written that again.
	for text, want := range map[string]string{
		"2026-11-23T17:15:37Z": "2026-11-23T17:15:37Z",
		"11/23/2026 17:15:37":  "2026-11-23T17:15:37Z",
	} {
		if got := TimeOf(text); got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

func TestTextsInARequestAreBounded(t *testing.T) {
	long := strings.Repeat("é", MaxCause)
	o, _ := ReadOutcome(Outcome{Result: Failed, Cause: long}.Properties(nil))
	for _, text := range []string{o.Cause, SetWaits(nil, long)[WaitsProperty]} {
		if len(text) > MaxCause || len(text) < MaxCause-8 || !utf8.ValidString(text) || !strings.HasSuffix(text, "é…") {
			t.Errorf("%d bytes, ending in %q", len(text), text[len(text)-8:])
		}
	}
}

// A request about a range is read as it was written, none of its texts looks like a time or a number, and a repetition
// has nothing of the outcome before.
func TestARequestAboutARangeIsReadAsItWasWritten(t *testing.T) {
	c := Control{
		Action: Reset, Min: "05", Max: "FF", By: "2026-11-27", Why: "12", To: Target{Token: `"7"`, Start: "beginning"},
	}
	old := map[string]string{"kept": "yes", OutcomeProperty: "x", CauseProperty: "x", WaitsProperty: "x"}
	all := c.Anew(old)
	got, err := ReadControl(all)
	if err != nil || !reflect.DeepEqual(got, c) || all["kept"] != "yes" || !IsControl(all) {
		t.Errorf("got %+v of %v, %v, want %+v", got, all, err, c)
	}
	for _, name := range []string{OutcomeProperty, CauseProperty, WaitsProperty} {
		if all[name] != "" {
			t.Errorf("%s is left: %q", name, all[name])
		}
	}
	if !c.Asks(all) {
		t.Error("a request does not ask for itself")
	}
	for what, other := range map[string]Control{
		"action": {Action: Pause, Min: c.Min, Max: c.Max, To: c.To}, "min": {Action: Reset, Max: c.Max, To: c.To},
		"max": {Action: Reset, Min: c.Min, Max: "06", To: c.To}, "target": {Action: Reset, Min: c.Min, Max: c.Max},
	} {
		if other.Asks(all) || other.Token() == c.Token() && what != "target" {
			t.Errorf("a request with another %s asks for the same", what)
		}
	}
	if IsControl(map[string]string{actionProperty: "retry"}) {
		t.Error("a request about a key is one about a range")
	}
	for _, bad := range []string{"", "05", "05-"} {
		if _, err := ReadControl(map[string]string{rangeProperty: plainID(bad)}); err == nil {
			t.Errorf("range %q is read", bad)
		}
	}
	since := time.Unix(1_800_000_000, 0)
	if text := Paused(since); !PausedSince(text).Equal(since) || text[0] < 'a' {
		t.Errorf("a pause since %v is %q", since, text)
	}
}
