package unit

import "testing"

// Names are intended if the user has given both. With one of them, the other may still be mistyped.
func TestIntendedNamesAreNotAlike(t *testing.T) {
	for _, c := range []struct {
		intended []string
		want     bool
	}{
		{nil, true},
		{[]string{"mailer"}, true},
		{[]string{"mailers"}, true},
		{[]string{"mailer", "billing"}, true},
		{[]string{"mailers", "mailer"}, false},
	} {
		a := &Unit{Processor: "mailer", Container: "orders", intended: c.intended}
		b := &Unit{Processor: "mailers", Container: "orders", intended: c.intended}
		if got := a.IsAlike(b); got != c.want || b.IsAlike(a) != c.want {
			t.Errorf("with %q: %v, want %v", c.intended, got, c.want)
		}
	}
}
