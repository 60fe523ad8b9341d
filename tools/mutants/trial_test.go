package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// small is a module with two tests, and a table with a mutant for each outcome.
var small = map[string]string{
	"go.mod": "module small\n\ngo 1.26\n",
	"sum/sum.go": `package sum

func Sum(list []int) (sum int) {
	for i := 0; i < len(list); i++ {
		sum += list[i]
	}
	if sum > 1<<40 {
		sum = 1 << 40
	}
	return sum
}

type Bag []int

func (Bag) Join(_ string, prefix string, parts ...string) (text string, n int) {
	for _, p := range parts {
		text, n = text+prefix+p, n+1
	}
	return text, n
}

func (b *Bag) add(n int) { *b = append(*b, n) }

func guard() (err any) {
	defer func() { err = recover() }()
	var b *Bag
	b.add(1)
	return nil
}
`,
	"sum/sum_test.go": `package sum

import "testing"

func TestOfNothing(t *testing.T) {
	if got := Sum(nil); got != 0 {
		t.Fatal(got)
	}
}

func TestOfSome(t *testing.T) {
	t.Run("three", func(t *testing.T) {
		if got := Sum([]int{1, 2, 3}); got != 6 {
			t.Fatal(got)
		}
	})
}

func TestBag(t *testing.T) {
	var b Bag
	b.add(7)
	if text, n := b.Join("", "-", "a", "b"); text != "-a-b" || n != 2 || b[0] != 7 {
		t.Fatal(text, n, b)
	}
}

func TestGuard(t *testing.T) {
	if guard() == nil {
		t.Fatal("no panic")
	}
}
`,
	tables + "/small.txt": `
== starts-at-one
package: sum
in: Sum
breaks: the first is not counted
from: me
by: TestOfNothing
-	for i := 0; i < len(list); i++ {
+	for i := 1; i < len(list); i++ {

== never-ends
package: sum
in: Sum
breaks: it does not return
from: me
by: TestOfSome
-	for i := 0; i < len(list); i++ {
+	for i := 0; i < len(list); i += 0 {

== no-bound
package: sum
in: Sum
breaks: it is too large
from: me
-	if sum > 1<<40 {
-		sum = 1 << 40
-	}

== same-bound
package: sum
in: Sum
breaks: nothing
from: me
survives: they are equal then
-	if sum > 1<<40 {
+	if sum >= 1<<40 {

== unused
package: sum
in: Sum
breaks: nothing
from: me
-	return sum
+	return summ

== no-prefix
package: sum
in: Bag.Join
breaks: parts run together
from: me
by: TestBag
-		text, n = text+prefix+p, n+1
+		text, n = text+p, n+1

== counts-from-one
package: sum
in: Bag.Join
breaks: one too many
from: me
-	return text, n
+	return text, n + 1

== adds-another
package: sum
in: Bag.add
breaks: another number is in the bag
from: me
by: TestBag
-func (b *Bag) add(n int) { *b = append(*b, n) }
+func (b *Bag) add(n int) { *b = append(*b, n+1) }

== no-guard
package: sum
in: guard
breaks: it is not told
from: me
by: TestGuard
-	defer func() { err = recover() }()
+	defer func() { _ = recover() }()

== missing-test
package: sum
in: Sum
breaks: nothing
from: me
by: TestOfAll
-	return sum
+	return 0
`,
}

// TestEachOutcomeIsToldAsItIs runs the go tool over the small module: a few seconds of work.
func TestEachOutcomeIsToldAsItIs(t *testing.T) {
	root := t.TempDir()
	for name, text := range small {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := listing(t, root)
	var out bytes.Buffer
	clean, err := options{root: root, output: "json", jobs: 2, limit: time.Second}.tryChosen(t.Context(), &out)
	if clean || err != nil {
		t.Errorf("clean %v, %v", clean, err)
	}
	got := map[string]result{}
	for line := range strings.Lines(out.String()) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		got[r.Name] = r
	}
	for name, want := range map[string]result{
		"starts-at-one":   {Outcome: killed, By: "TestOfSome/three"},
		"never-ends":      {Outcome: killed, By: "TestOfSome", Hung: true},
		"no-bound":        {Outcome: survived},
		"same-bound":      {Outcome: excused, Reason: "they are equal then"},
		"unused":          {Outcome: broken, Reason: "undefined: summ"},
		"no-prefix":       {Outcome: killed, By: "TestBag"},
		"counts-from-one": {Outcome: killed, By: "TestBag"},
		"adds-another":    {Outcome: killed, By: "TestBag"},
		"no-guard":        {Outcome: killed, By: "TestGuard"},
		"missing-test":    {Outcome: broken, Reason: "no such test in sum"},
	} {
		r := got[name]
		if r.Outcome != want.Outcome || r.By != want.By || r.Hung != want.Hung ||
			!strings.Contains(r.Reason, want.Reason) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if after := listing(t, root); !slices.Equal(before, after) {
		t.Errorf("the work tree was %q and is %q", before, after)
	}
}

// listing returns the names and texts of all files.
func listing(t *testing.T, root string) (all []string) {
	err := filepath.WalkDir(root, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		all = append(all, file+"\n"+string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAPartIsEveryNth(t *testing.T) {
	var all []mutant
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, mutant{name: name})
	}
	for part, want := range map[string]string{
		"": "a b c d e", "0/2": "a c e", "1/2": "b d", "4/10": "e", "7/10": "",
		"2/2": "no part", "x": "no part",
	} {
		chosen, err := options{part: part}.chooseMutants(all)
		var names []string
		for _, m := range chosen {
			names = append(names, m.name)
		}
		if got := strings.Join(names, " "); got != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %q, %v", part, got, err)
		}
	}
	if _, err := (options{names: []string{"b", "x"}}).chooseMutants(all); err == nil {
		t.Error("an unknown name was taken")
	}
	chosen, err := options{names: []string{"b", "d"}, part: "1/2"}.chooseMutants(all)
	if err != nil || len(chosen) != 1 || chosen[0].name != "d" {
		t.Errorf("%v, %v", chosen, err)
	}
}

func TestTheSumNamesTheFaults(t *testing.T) {
	p := printer{count: map[string]int{killed: 7, survived: 1, excused: 2, broken: 3}}
	if got, want := p.formatSummary(), "7 killed, 3 survived (2 with a reason), 3 broken"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
