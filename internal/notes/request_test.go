package notes

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAnOutcomeIsReadAsItWasWritten(t *testing.T) {
	asked := Request{Action: Retry, Key: `["k"]`, Letter: "1.0", Tries: 2}
	before := SetWaits(asked.Properties(map[string]string{"team": "red"}), "no letter box")
	for _, o := range []Outcome{
		{Result: Handled, Count: 3}, {Result: Failed, Cause: "broken", Count: 1, Left: 4}, {Result: Nothing, Left: UnknownLeft},
	} {
		p := o.Properties(before)
		got, ok := ReadOutcome(p)
		if got != o || !ok {
			t.Errorf("got %+v, %v, want %+v", got, ok, o)
		}
		if p["team"] != "red" || p[WaitsProperty] != "" || ReadRequest(p) != asked {
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

func TestTextsInARequestAreBounded(t *testing.T) {
	long := strings.Repeat("é", MaxCause)
	o, _ := ReadOutcome(Outcome{Result: Failed, Cause: long}.Properties(nil))
	for _, text := range []string{o.Cause, SetWaits(nil, long)[WaitsProperty]} {
		if len(text) > MaxCause || len(text) < MaxCause-8 || !utf8.ValidString(text) || !strings.HasSuffix(text, "é…") {
			t.Errorf("%d bytes, ending in %q", len(text), text[len(text)-8:])
		}
	}
}
