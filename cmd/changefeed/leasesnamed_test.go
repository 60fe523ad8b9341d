package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// All units of a name are shown, whatever they read. The error for another name has each name once, and none for
// documents of no unit.
func TestAllUnitsOfANameAreShown(t *testing.T) {
	units := []unit.Unit{
		{Processor: "mailer", Container: "orders"},
		{Processor: "hook", Container: "orders"},
		{Processor: "mailer", Container: "returns"},
		{},
	}
	got, err := unitsNamed("mailer", units)
	if err != nil || len(got) != 2 || got[0].Container != "orders" || got[1].Container != "returns" {
		t.Errorf("got %+v, %v, want the two of this name", got, err)
	}
	_, err = unitsNamed("mail", units)
	_, isMissing := errors.AsType[usage.Missing](err)
	if !isMissing || !strings.HasSuffix(err.Error(), ": want one of hook, mailer") {
		t.Errorf("got %v, want the names", err)
	}
	if _, err = unitsNamed("mail", units[3:]); err == nil || !strings.HasSuffix(err.Error(), ": there is none") {
		t.Errorf("got %v, want that there is none", err)
	}
}
