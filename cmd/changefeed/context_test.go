package main

import (
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
)

func TestContextsAreReportedAsTheirKinds(t *testing.T) {
	for _, k := range []report.Kind{contextKind, removedContextKind} {
		if got := k.Of.ReportedAs(); got != k.Name {
			t.Errorf("got kind %s, want %s", got, k.Name)
		}
		for _, f := range k.Fields() {
			if f.About == "" {
				t.Errorf("%s of %s is not explained", f.Name, k.Name)
			}
		}
	}
}
