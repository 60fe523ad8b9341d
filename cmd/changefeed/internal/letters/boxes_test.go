package letters

import (
	"errors"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// Who drops the letters of a name means one unit, and is asked which.
func TestLettersOfSeveralUnitsAreNotChangedAtOnce(t *testing.T) {
	c := &place.Container{Address: place.Address{Database: "shop", Container: "letters"}}
	two := []string{"shop/bills", "shop/orders"}
	changing, reading := Query{Name: "mailer", Sole: true}, Query{Name: "mailer"}
	if _, err := changing.describePlace(c, two); !errors.As(err, new(usage.Error)) {
		t.Errorf("letters of two units may be changed: %v", err)
	}
	if from, err := changing.describePlace(c, two[:1]); err != nil || from != "shop/letters" {
		t.Errorf("letters of one: %q, %v", from, err)
	}
	if from, err := reading.describePlace(c, two); err != nil ||
		from != "shop/letters of shop/bills and of shop/orders" {
		t.Errorf("letters that are read: %q, %v", from, err)
	}
}
