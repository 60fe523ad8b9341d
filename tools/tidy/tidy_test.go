package tidy

import (
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTheRepositoryKeepsItsRules(t *testing.T) {
	r, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	used := map[waiver]bool{}
	for _, ru := range rules {
		t.Run(ru.name, func(t *testing.T) {
			for _, f := range breaches(r, ru, waivers, used) {
				t.Errorf("%s - %s (%s: %s)", f.where, f.text, ru.name, ru.why)
			}
			for _, w := range waivers {
				if w.rule == ru.name && !used[w] {
					t.Errorf("the waiver for %s excuses nothing: remove it", w.where)
				}
			}
		})
	}
}

func TestEveryWaiverNamesARuleAndAReason(t *testing.T) {
	for _, w := range waivers {
		named := slices.ContainsFunc(rules, func(ru rule) bool { return ru.name == w.rule })
		if !named || len(w.why) < 10 {
			t.Errorf("waiver %+v: want a known rule and a reason", w)
		}
	}
}

func TestAWaiverExcusesOnePlaceAndIsMarkedAsUsed(t *testing.T) {
	r := sample(t, "-- docstore/a.go --\npackage docstore\nfunc F() { go G() }\nfunc H() { go G() }\n")
	ru := rules[slices.IndexFunc(rules, func(ru rule) bool { return ru.name == "goroutine" })]
	right := waiver{"goroutine", "docstore/a.go:F", "for this test"}
	other := waiver{"calls", "docstore/a.go:H", "another rule"}
	used := map[waiver]bool{}
	left := breaches(r, ru, []waiver{right, other}, used)
	if len(left) != 1 || left[0].where != "docstore/a.go:H" || !used[right] || used[other] {
		t.Errorf("left %v, used %v: want only H left, only the first waiver used", left, used)
	}
}

// A line of a package that is gone would let a new one of its name import more than was thought of.
func TestEveryEdgeIsOfAPackage(t *testing.T) {
	r, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	exists := func(name string) bool {
		return name == anyPackage || name == thirdParty ||
			slices.ContainsFunc(r.files, func(f *file) bool {
				is, _ := path.Match(name, f.dir)
				return is || strings.HasPrefix(f.dir, name+"/")
			})
	}
	for from, to := range edges {
		for _, name := range append([]string{from}, to...) {
			if !exists(name) {
				t.Errorf("the line of %s names %s, which has no package: remove it", from, name)
			}
		}
	}
}

func TestEveryRuleHasABadSample(t *testing.T) {
	for _, ru := range rules {
		if !slices.ContainsFunc(samples, func(s badSample) bool { return s.rule == ru.name && s.want != "" }) {
			t.Errorf("no bad sample for %s", ru.name)
		}
	}
}

func TestARuleFindsWhatItsSampleBreaks(t *testing.T) {
	for _, s := range samples {
		t.Run(s.rule+"/"+s.name, func(t *testing.T) {
			i := slices.IndexFunc(rules, func(ru rule) bool { return ru.name == s.rule })
			places := map[string]bool{}
			for _, f := range rules[i].check(sample(t, s.files)) {
				places[f.where] = true
			}
			got := strings.Join(slices.Sorted(maps.Keys(places)), " ")
			if got != s.want {
				t.Errorf("found %q, want %q", got, s.want)
			}
		})
	}
}

// sample builds a repository from a text in which a line "-- path --" begins a file.
func sample(t *testing.T, text string) *repo {
	t.Helper()
	fsys := fstest.MapFS{}
	if !strings.Contains(text, "-- go.mod --") {
		text = "-- go.mod --\nmodule example.com/m\n" + text
	}
	for part := range strings.SplitSeq("\n"+text, "\n-- ") {
		if name, body, ok := strings.Cut(part+"\n", " --\n"); ok {
			fsys[name] = &fstest.MapFile{Data: []byte(body)}
		}
	}
	r, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
