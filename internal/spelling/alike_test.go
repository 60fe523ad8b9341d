package spelling

import "testing"

// A name may be another one, mistyped, unless it differs in its digits alone or has more words.
func TestNamesThatMayBeMistypedAreAlike(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"mailer", "maler", true},
		{"mailer", "mailers", true},
		{"mail", "mailer", true},
		{"orders-mailer", "orders-maler", true},
		{"mailer2", "maler1", true},
		{"mailer", "mailer-", true},
		{"api", "apj", true},
		{"np", "pp", false},
		{"a", "b", false},
		{"mailer", "billing", false},
		{"mailer", "mailer", false},
		{"mailer", "mailer2", false},
		{"mailer-v1", "mailer-v2", false},
		{"mailer", "mailer-audit", false},
		{"orders", "orders.v2", false},
	} {
		if got, back := IsAlike(c.a, c.b), IsAlike(c.b, c.a); got != c.want || back != c.want {
			t.Errorf("%s and %s: %v, %v, want %v", c.a, c.b, got, back, c.want)
		}
	}
}
