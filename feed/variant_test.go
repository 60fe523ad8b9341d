package feed_test

import (
	"testing"

	"github.com/millrace/changefeed/feed"
)

// The sentence names wherein variants differ, and nothing that is the same in all.
func TestVariantsSayWhereinTheyDiffer(t *testing.T) {
	for _, c := range []struct {
		all  feed.Variants
		want string
	}{
		{feed.Variants{
			{Handler: "mail 1", Program: "shop v1", Options: "timeout=1m", Instances: []string{"a", "b"}},
			{Handler: "mail 2", Program: "shop v1", Options: "timeout=1m", Instances: []string{"c"}},
		}, "a, b run mail 1; c runs mail 2"},
		{feed.Variants{
			{Handler: "mail", Program: "shop v1", Options: "timeout=1m", Instances: []string{"a"}},
			{Handler: "mail", Program: "", Options: "timeout=2m", Instances: []string{"b"}},
		}, "a runs shop v1, timeout=1m; b runs a program of an unknown version, timeout=2m"},
		{feed.Variants{
			{Handler: "mail", Instances: []string{"a", "b", "c", "d", "e", "f"}},
			{Instances: []string{"g"}},
		}, "a, b, c, d and 2 more run mail; g runs a handler without a name"},
		{feed.Variants{
			{Handler: "mail", Program: "shop v1", Options: "timeout=1m", Instances: []string{"a"}},
		}, "a runs mail, shop v1, timeout=1m"},
	} {
		if got := c.all.String(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// The hash is that of what is run, whoever runs it.
func TestTheHashOfAVariantIsThatOfWhatIsRun(t *testing.T) {
	base := feed.Variant{Handler: "a", Program: "b", Options: "c"}
	same := base
	same.Instances = []string{"x"}
	if base.Hash() != same.Hash() || len(base.Hash()) != 8 {
		t.Errorf("hashes %s and %s of the same variant", base.Hash(), same.Hash())
	}
	for _, other := range []feed.Variant{
		{Handler: "x", Program: "b", Options: "c"},
		{Handler: "a", Program: "x", Options: "c"},
		{Handler: "a", Program: "b", Options: "x"},
	} {
		if other.Hash() == base.Hash() {
			t.Errorf("%+v has the hash of %+v", other, base)
		}
	}
	one, two := feed.Variant{Handler: "a b", Program: "c"}, feed.Variant{Handler: "a", Program: "b c"}
	if one.Hash() == two.Hash() {
		t.Errorf("%+v has the hash of %+v", one, two)
	}
}
