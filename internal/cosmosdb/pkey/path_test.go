package pkey

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

func TestParsePathReadsNamesAndQuotes(t *testing.T) {
	for path, want := range map[string]Path{
		`/a`:               {"a"},
		`/id`:              {"id"},
		`/address/city`:    {"address", "city"},
		`/a*/b?/_ts`:       {"a*", "b?", "_ts"},
		`/ü/日本`:            {"ü", "日本"},
		`/"a/b"/c`:         {"a/b", "c"},
		`/'a "b"'/"it's"`:  {`a "b"`, "it's"},
		`/"a\"b\\"/'\''`:   {`a"b\`, "'"},
		`/"*"/'?'/"[]"/""`: {"*", "?", "[]", ""},
		`/a"b`:             {`a"b`},
		`/my prop`:         {"my prop"},
	} {
		got, err := ParsePath(path)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestParsePathSaysWhatIsWrong(t *testing.T) {
	for path, want := range map[string]string{
		``:         `path "" does not begin with a slash: want one as in /tenant`,
		`tenant`:   `path "tenant" does not begin with a slash: want one as in /tenant`,
		`/`:        `a slash has no name after it: want one as in /tenant`,
		`/a/`:      `a slash has no name after it: want one as in /tenant`,
		`/a//b`:    `a slash has no name after it: want one as in /tenant`,
		`/*`:       `segment * is a wildcard: want a name, or "*" for a property of that name`,
		`/a/?`:     `segment ? is a wildcard: want a name, or "?" for a property of that name`,
		`/a/[]/b`:  `segment [] is a wildcard: want a name, or "[]" for a property of that name`,
		`/"a`:      `segment "a has no closing quote`,
		`/'a\'`:    `segment 'a\' has no closing quote`,
		`/"a\`:     `segment "a\ has no closing quote`,
		`/"a"b`:    `path "/\"a\"b" goes on after a quote: want a slash there`,
		`/_etag`:   `path "/_etag" leads to a system property: want one of your own`,
		`/_ts/a`:   `path "/_ts/a" leads to a system property: want one of your own`,
		"/a\xff/b": `path "/a\xff/b" is not UTF-8: want one as in /tenant`,
	} {
		p, err := ParsePath(path)
		if !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("%s: %q, %v, want a bad request", path, p, err)
		} else if !strings.HasSuffix(err.Error(), "bad request: "+want) {
			t.Errorf("%s:\n got %v\nwant %s", path, err, want)
		}
	}
}

func TestContainersHaveOneToThreeDifferentKeyPaths(t *testing.T) {
	for _, paths := range [][]string{{"/a"}, {"/a", "/a/b", "/b"}} {
		if p, err := ParsePaths(paths); err != nil || len(p) != len(paths) {
			t.Errorf("%q: %q, %v", paths, p, err)
		}
	}
	for _, paths := range [][]string{nil, {"/a", "/b", "/c", "/d"}, {"/a", `/"a"`}, {"/a", "b"}} {
		if p, err := ParsePaths(paths); !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("%q: %q, %v, want a bad request", paths, p, err)
		}
	}
}

func TestAKeyPathReadsItsOwnText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ab/\\"'*? ]{0,5}`))
		want := Path(rapid.SliceOfN(name, 1, 4).Draw(t, "names"))
		if got, err := ParsePath(want.String()); service.IsSystem(want[0]) != (err != nil) ||
			err == nil && !slices.Equal(got, want) {
			t.Fatalf("%s: %q, %v, want %q", want, got, err, want)
		}
	})
}

func FuzzKeyPath(f *testing.F) {
	for _, path := range []string{"/a/b", `/"a\"/b"/'c'`, "/", `/"`, `/'\`, "a"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p, err := ParsePath(path)
		if err != nil {
			if !errors.Is(err, feed.ErrBadRequest) {
				t.Errorf("%q: %v, want a bad request", path, err)
			}
			return
		}
		if again, err := ParsePath(p.String()); err != nil || !slices.Equal(again, p) {
			t.Errorf("%q: reads as %q, then as %q, %v", path, p, again, err)
		}
	})
}
