package changefeed_test

import (
	"testing"

	"github.com/millrace/changefeed/feed"
)

func TestKeysHaveOneText(t *testing.T) {
	for _, c := range []struct {
		key  feed.PartitionKey
		want feed.PartitionKey
	}{
		{feed.Key("London"), `["London"]`},
		{feed.Key("<a&b>"), `["<a&b>"]`},
		{feed.Key(5), `[5]`},
		{feed.Key(1.5, true, nil), `[1.5,true,null]`},
		{feed.Key(feed.Undefined), `[{}]`},
		{feed.Key(), `[]`},
		{feed.Key(map[string]any{}), `[map[string]interface {}]`}, // refused by stores
		{feed.Key(struct{}{}), `[struct {}]`},
		{feed.Key(make(chan int)), `[chan int]`},
	} {
		if c.key != c.want {
			t.Errorf("got %s, want %s", c.key, c.want)
		}
	}
}

func TestRangesAreCutEvenly(t *testing.T) {
	parts := feed.FullRange().Cut(4)
	want := []string{
		"-10000000000000000000000000000000",
		"10000000000000000000000000000000-20000000000000000000000000000000",
		"20000000000000000000000000000000-30000000000000000000000000000000",
		"30000000000000000000000000000000-FF",
	}
	for i, p := range parts {
		if p.String() != want[i] {
			t.Errorf("part %d is %s, want %s", i, p, want[i])
		}
		if back, err := feed.ParseRange(p.String()); err != nil || back != p {
			t.Errorf("ParseRange(%s) = %v, %v", p, back, err)
		}
	}
	if n := len((feed.Range{Min: "10", Max: "1000"}).Cut(5)); n != 1 {
		t.Errorf("a range too narrow to cut became %d parts", n)
	}
	for _, bad := range []string{"", "FF", "xx-FF", "3F-1F", "1F-1F"} {
		if _, err := feed.ParseRange(bad); err == nil {
			t.Errorf("ParseRange(%q) took it", bad)
		}
	}
}

func TestStartsReadBackWhatTheyWrite(t *testing.T) {
	for _, text := range []string{"now", "beginning", "2026-01-31T15:04:05Z", "2026-01-31T15:04:05.123456789Z"} {
		s, err := feed.ParseStart(text)
		if err != nil || s.String() != text {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
	if _, err := feed.ParseStart("yesterday"); err == nil {
		t.Error("yesterday is no start")
	}
}
