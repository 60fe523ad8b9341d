package metrics

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"
)

// The table of the documentation has each instrument, with its unit, and no other.
func TestTheTableHasAllInstruments(t *testing.T) {
	m := &maker{meter: noop.NewMeterProvider().Meter("")}
	newEvents(m)
	newSending(m)
	newRelayGauges(m)
	newLagGauges(m)
	stateGauges(m)
	newProcessGauges(m)
	slices.Sort(m.names)
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, row := range regexp.MustCompile(`(?m)^//\t([a-z]+\.[a-z_.]+) +(\S+)`).FindAllSubmatch(text, -1) {
		told = append(told, string(row[1])+" "+string(row[2]))
	}
	slices.Sort(told)
	if !slices.Equal(told, m.names) {
		t.Errorf("doc.go has %q, the instruments are %q", told, m.names)
	}
}
